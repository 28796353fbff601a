/* SPDX-License-Identifier: Apache-2.0 */
/* What was wrong, in words. */
#include "fault.h"

#include <stdarg.h>
#include <stdio.h>

#undef fault_set /* a macro for the analyzer */

bool fault_set(struct fault *fault, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(fault->text, sizeof(fault->text), fmt, args);
	va_end(args);
	return false;
}
