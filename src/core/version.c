/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Version of the library as number and text. On its own, because the commit
 * changes more often than any code.
 */
#include <ferry/base.h>

#define STRING_(x) #x
#define STRING(x)  STRING_(x)

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

#define VERSION_TEXT                                                           \
	STRING(FERRY_VERSION_MAJOR)                                            \
	"." STRING(FERRY_VERSION_MINOR) "." STRING(FERRY_VERSION_PATCH)

int ferry_version(void)
{
	return FERRY_VERSION;
}

const char *ferry_version_text(void)
{
	static const char text[] =
		VERSION_TEXT " (" FERRY_COMMIT ", " COMPILER ")";

	return text;
}
