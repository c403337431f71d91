// SPDX-License-Identifier: GPL-2.0
#include "mark.h"

int main(void)
{
	__asm__ volatile(MARK_ASM);
	return 0;
}
