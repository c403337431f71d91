// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "endpoint.h"
#include "namespace.h"

int namespace_enter(const char *name)
{
	int home, there;
	char path[128];

	snprintf(path, sizeof(path), "%s%s", *name == '/' ? "" : "/run/netns/", name);
	home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	there = open(path, O_RDONLY | O_CLOEXEC);
	if (home < 0 || there < 0 || setns(there, CLONE_NEWNET))
		die("%s cannot be entered: %s", path, strerror(errno));
	close(there);
	return home;
}

void namespace_leave(int home)
{
	if (setns(home, CLONE_NEWNET))
		die("there is no way back from a namespace: %s", strerror(errno));
	close(home);
}

bool command(const char *format, ...)
{
	char line[256];
	va_list list;

	va_start(list, format);
	vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	fflush(stdout);
	if (!system(line))
		return true;
	printf("# it fails: %s\n", line);
	return false;
}

int capture_open(const char *namespace, const char *netdev, uint8_t mac[6])
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	int home = namespace_enter(namespace);
	int capture = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	struct ifreq request = {};
	int room = 8 << 20;

	at.sll_ifindex = if_nametoindex(netdev);
	strncpy(request.ifr_name, netdev, IFNAMSIZ - 1);
	if (capture < 0 || !at.sll_ifindex || setsockopt(capture, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) ||
	    bind(capture, (struct sockaddr *)&at, sizeof(at)) || ioctl(capture, SIOCGIFHWADDR, &request))
		die("%s: no packet socket: %s", netdev, strerror(errno));
	if (mac)
		memcpy(mac, request.ifr_hwaddr.sa_data, 6);
	namespace_leave(home);
	return capture;
}

int tun_open(const char *namespace, const char *name, int flags)
{
	struct ifreq request = { .ifr_flags = flags };
	int home = namespace_enter(namespace);
	int carrier = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	if (carrier < 0 || ioctl(carrier, TUNSETIFF, &request))
		die("%s: no tun netdev: %s", name, strerror(errno));
	namespace_leave(home);
	return carrier;
}
