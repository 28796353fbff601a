/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of several verdicts counts. Pure functions of the set, so that ranks
 * that know the same verdicts report the same root, in whatever order they
 * arrived.
 */
#ifndef FERRY_VERDICT_H
#define FERRY_VERDICT_H

#include "segment.h"

/*
 * Index of the verdict that all report; entries whose `here` is false are not
 * there. -1 when none is. A good-bye is never chosen.
 *
 * A death comes first: what else was reported may follow from it, a broken
 * connection before all, which is next. Then errors found by content, then an
 * abort, then timeouts, those that were found before those that were asked for.
 * Within a class the earliest by (epoch, phase, slot), then the smallest root
 * and reporter. A timeout whose root waits for somebody itself leads on to its
 * root's verdict, and so to the one that all wait for.
 */
int32_t ferry_verdict_choose(const struct ferry_verdict *verdicts,
                             const bool *here, int32_t n);

/*
 * "dispatch_recv: slot 0, dispatch 17: rank 2 died (noticed by rank 1)". `why`:
 * what a transport says of a broken connection; NULL otherwise.
 */
void ferry_verdict_text(const struct ferry_verdict *verdict, const char *why,
                        char *text, size_t bytes);

/* The public record of a verdict; the text is not touched. */
void ferry_verdict_record(const struct ferry_verdict *verdict,
                          struct ferry_error *error);

#endif
