/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of statuses and phases. */
#include <ferry/base.h>

const char *ferry_status_name(enum ferry_status status)
{
	switch (status) {
#define NAME(name, value, text)                                                \
	case FERRY_##name:                                                     \
		return "FERRY_" #name;
		FERRY_STATUS_MAP(NAME)
#undef NAME
	}
	return "FERRY_?";
}

const char *ferry_status_text(enum ferry_status status)
{
	switch (status) {
#define TEXT(name, value, text)                                                \
	case FERRY_##name:                                                     \
		return text;
		FERRY_STATUS_MAP(TEXT)
#undef TEXT
	}
	return "unknown status";
}

const char *ferry_phase_name(enum ferry_phase phase)
{
	switch (phase) {
	case FERRY_PHASE_NONE:
		return "none";
	case FERRY_PHASE_OPEN:
		return "open";
	case FERRY_PHASE_DISPATCH_SEND:
		return "dispatch_send";
	case FERRY_PHASE_DISPATCH_RECV:
		return "dispatch_recv";
	case FERRY_PHASE_COMBINE_SEND:
		return "combine_send";
	case FERRY_PHASE_COMBINE_RECV:
		return "combine_recv";
	}
	return "?";
}
