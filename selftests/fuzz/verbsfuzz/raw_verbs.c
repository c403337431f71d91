// SPDX-License-Identifier: GPL-2.0
/* See raw_verbs.h. */

#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "raw_verbs.h"

/* The bytes of a write(), with a header in front. */
#define REQUEST_ROOM 4096
/* Where in the room of an answer the core of a command stands that is given to ioctl(). */
#define CORE_AT (ANSWER_ROOM / 2)

/* Addresses where nothing of this process can be damaged. */
static uint64_t wrong_address(struct choice *choice)
{
	static const uint64_t addresses[] = {
		0, 1, 4096, 0xffff888000000000, 0xffffffff81000000, 0xfffffffffffff000, ~0ULL, 1ULL << 47,
		1ULL << 63,
	};

	return addresses[below(choice, ARRAY_SIZE(addresses))];
}

/*
 * Never GET_CONTEXT in the place of another method: where it fails, ib_core frees the context but not the reference
 * to the task that stands in it, as kmemleak finds. No driver can prevent that.
 */
static void context_avoid(struct ib_uverbs_ioctl_hdr *header)
{
	if (header->object_id == UVERBS_OBJECT_DEVICE && header->method_id == UVERBS_METHOD_GET_CONTEXT)
		header->method_id = UVERBS_METHOD_QUERY_PORT;
}

void command_start(struct command *command, uint32_t number, const void *core, size_t core_size,
		   size_t answer_size)
{
	memset(command, 0, sizeof(*command));
	command->number = number;
	memcpy(command->core.bytes, core, core_size);
	command->core_size = core_size;
	command->answer_size = answer_size;
	if (answer_size)
		command->addresses = 1;
}

static void core_spoil(struct command *command, struct choice *choice)
{
	uint32_t words = (command->core_size + 7) / 8;
	uint32_t word, half;

	do {
		word = below(choice, words);
		half = 8 * word + 4 * below(choice, 2);
		if (command->addresses >> word & 1)
			command->core.words[word] = wrong_address(choice);
		else if (one_in(choice, 2))
			command->core.bytes[8 * word + below(choice, 8)] = any(choice);
		else if (one_in(choice, 2))
			command->core.words[word] = odd_value(choice, 4095);
		else
			memset(&command->core.bytes[half], one_in(choice, 2) ? 0xff : 0, 4);
	} while (one_in(choice, 2));
}

static uint32_t other_number(struct choice *choice)
{
	/*
	 * Never GET_CONTEXT: where it fails, ib_core may lose the event file that it has just made, as kmemleak
	 * finds. No driver can prevent that.
	 */
	return 1 + below(choice, 63);
}

/* By how much a length in a header is wrong. */
static int wrong_length(struct choice *choice)
{
	return one_in(choice, 4) ? (int)below(choice, 65536) : (int)below(choice, 9) - 4;
}

static int by_write(int file, struct command *command, uint8_t *answer, struct choice *liar)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		uint8_t body[REQUEST_ROOM];
	} request = { .header.command = command->number };
	struct ib_uverbs_ex_cmd_hdr extended = { .response = (uintptr_t)answer };
	size_t at = 0, size;
	ssize_t written;

	if (command->extended) {
		request.header.command |= IB_USER_VERBS_CMD_FLAG_EXTENDED;
		request.header.in_words = command->core_size / 8;
		request.header.out_words = command->answer_size / 8;
		extended.provider_in_words = command->driver_size / 8;
		extended.provider_out_words = command->driver_answer_size / 8;
		if (liar && one_in(liar, 8))
			extended.response = wrong_address(liar);
		if (liar && one_in(liar, 8))
			extended.provider_out_words += wrong_length(liar);
		memcpy(request.body, &extended, sizeof(extended));
		at = sizeof(extended);
	} else {
		request.header.in_words = (sizeof(request.header) + command->core_size + command->driver_size) / 4;
		request.header.out_words = (command->answer_size + command->driver_answer_size) / 4;
	}
	memcpy(request.body + at, command->core.bytes, command->core_size);
	memcpy(request.body + at + command->core_size, &command->driver, command->driver_size);
	size = sizeof(request.header) + at + command->core_size + command->driver_size;
	if (liar) {
		switch (below(liar, 8)) {
		case 0:
			request.header.command = other_number(liar);
			break;
		case 1:
			request.header.in_words += wrong_length(liar);
			break;
		case 2:
			request.header.out_words += wrong_length(liar);
			break;
		case 3:
			size = below(liar, sizeof(request));
			break;
		case 4:
			size = below(liar, sizeof(request));
			request.header.in_words = size / 4;
			break;
		default:
			break;
		}
	}
	written = write(file, &request, size);
	return written < 0 ? errno : 0;
}

void method_start(struct method *method, uint16_t object, uint16_t number)
{
	method->object = object;
	method->method = number;
	method->count = 0;
}

static struct ib_uverbs_attr *attribute(struct method *method, uint16_t id, uint16_t size, uint64_t data)
{
	struct ib_uverbs_attr *attribute = &method->attributes[method->count++];

	*attribute = (struct ib_uverbs_attr){
		.attr_id = id,
		.len = size,
		.flags = UVERBS_ATTR_F_MANDATORY,
		.data = data,
	};
	return attribute;
}

void method_value(struct method *method, uint16_t id, uint64_t value, uint16_t size)
{
	attribute(method, id, size, value);
}

void method_in(struct method *method, uint16_t id, const void *from, uint16_t size)
{
	uint64_t value = 0;

	/* What is short stands in the attribute itself. */
	if (size <= sizeof(value))
		memcpy(&value, from, size);
	else
		value = (uintptr_t)from;
	attribute(method, id, size, value);
}

void method_out(struct method *method, uint16_t id, void *to, uint16_t size)
{
	attribute(method, id, size, (uintptr_t)to);
}

struct ib_uverbs_attr *method_object(struct method *method, uint16_t id, uint64_t number)
{
	return attribute(method, id, 0, number);
}

/* Never the data of what has an address there: it may be that of something else then. */
static void attribute_spoil(struct ib_uverbs_attr *attribute, struct choice *choice)
{
	switch (below(choice, 5)) {
	case 0:
		attribute->len += wrong_length(choice);
		break;
	case 1:
		attribute->attr_id = one_in(choice, 2) ? below(choice, 20) : UVERBS_ID_DRIVER_NS + below(choice, 4);
		break;
	case 2:
		attribute->flags ^= 1u << below(choice, 16);
		break;
	case 3:
		attribute->attr_data.reserved ^= 1u << below(choice, 16);
		break;
	default:
		attribute->data = attribute->len > 8 ? wrong_address(choice) : odd_value(choice, 4095);
		break;
	}
}

int method_run(int file, struct method *method, struct lies *lies)
{
	struct {
		struct ib_uverbs_ioctl_hdr header;
		struct ib_uverbs_attr attributes[24];
	} request = {
		.header = {
			.length = sizeof(request.header) + method->count * sizeof(struct ib_uverbs_attr),
			.object_id = method->object,
			.method_id = method->method,
			.num_attrs = method->count,
			.driver_id = RDMA_DRIVER_RXE,
		},
	};
	struct choice *choice = lies ? lies->choice : NULL;
	int error;

	memcpy(request.attributes, method->attributes, method->count * sizeof(struct ib_uverbs_attr));
	if (lies) {
		lies->lied = true;
		switch (below(choice, 10)) {
		case 0:
			request.header.length += wrong_length(choice);
			break;
		case 1:
			request.header.num_attrs += wrong_length(choice);
			break;
		case 2:
			request.header.object_id = below(choice, 20);
			break;
		case 3:
			request.header.method_id = below(choice, 8);
			break;
		case 4:
			request.header.reserved1 = any(choice);
			break;
		case 5:
			/* One that is missing, or twice there. */
			request.attributes[below(choice, method->count + 1)] =
				request.attributes[below(choice, method->count + 1)];
			break;
		default:
			do {
				attribute_spoil(&request.attributes[below(choice, method->count + 1)], choice);
			} while (one_in(choice, 2));
			break;
		}
	}
	if (lies)
		context_avoid(&request.header);
	error = ioctl(file, RDMA_VERBS_IOCTL, &request) ? errno : 0;
	memcpy(method->attributes, request.attributes, method->count * sizeof(struct ib_uverbs_attr));
	return error;
}

static int by_ioctl(int file, struct command *command, uint8_t *answer, struct lies *lies)
{
	uint64_t number = command->number | (command->extended ? IB_USER_VERBS_CMD_FLAG_EXTENDED : 0);
	struct method method;

	if (lies && one_in(lies->choice, 4))
		number = other_number(lies->choice);
	/* A lie may have it written to. */
	memcpy(answer + CORE_AT, command->core.bytes, command->core_size);
	method_start(&method, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	method_value(&method, UVERBS_ATTR_WRITE_CMD, number, sizeof(number));
	method_in(&method, UVERBS_ATTR_CORE_IN, answer + CORE_AT, command->core_size);
	if (command->answer_size)
		method_out(&method, UVERBS_ATTR_CORE_OUT, answer, command->answer_size);
	if (command->driver_size)
		method_in(&method, UVERBS_ATTR_UHW_IN, &command->driver, command->driver_size);
	if (command->driver_answer_size)
		method_out(&method, UVERBS_ATTR_UHW_OUT, answer + command->answer_size,
			   command->driver_answer_size);
	return method_run(file, &method, lies && one_in(lies->choice, 2) ? lies : NULL);
}

int command_run(int file, struct command *command, uint8_t *answer, bool write_it, struct lies *lies)
{
	if (command->answer_size && !command->extended)
		command->core.words[0] = (uintptr_t)answer;
	if (lies) {
		lies->lied = true;
		if (!one_in(lies->choice, 4))
			core_spoil(command, lies->choice);
	}
	return write_it ? by_write(file, command, answer, lies ? lies->choice : NULL) :
			  by_ioctl(file, command, answer, lies);
}

int nonsense_run(int file, struct choice *choice, uint8_t *answer)
{
	union {
		uint64_t words[128];
		struct ib_uverbs_cmd_hdr command;
		struct ib_uverbs_ioctl_hdr method;
	} bytes;
	size_t size = below(choice, sizeof(bytes)), i;

	for (i = 0; i < sizeof(bytes) / 8; i++) {
		/* Small numbers, the address of what may be written to, or an address of nobody. */
		bytes.words[i] = one_in(choice, 2) ? below(choice, 64) | (uint64_t)below(choice, 64) << 32 :
				 one_in(choice, 2) ? (uintptr_t)answer : wrong_address(choice);
	}
	if (one_in(choice, 2)) {
		bytes.command.command = other_number(choice);
		if (one_in(choice, 4))
			bytes.command.command |= IB_USER_VERBS_CMD_FLAG_EXTENDED;
		bytes.command.in_words = one_in(choice, 4) ? any(choice) : size / 4;
		bytes.command.out_words = below(choice, 64);
		return write(file, &bytes, size) < 0 ? errno : 0;
	}
	bytes.method.length = one_in(choice, 4) ? any(choice) :
			      sizeof(bytes.method) + below(choice, 8) * sizeof(struct ib_uverbs_attr);
	bytes.method.object_id = below(choice, 20);
	bytes.method.method_id = below(choice, 8);
	bytes.method.num_attrs = one_in(choice, 4) ? any(choice) :
				 (bytes.method.length - sizeof(bytes.method)) / sizeof(struct ib_uverbs_attr);
	bytes.method.reserved1 = one_in(choice, 8);
	bytes.method.reserved2 = 0;
	context_avoid(&bytes.method);
	return ioctl(file, one_in(choice, 16) ? any(choice) : RDMA_VERBS_IOCTL, &bytes) ? errno : 0;
}
