/* SPDX-License-Identifier: Apache-2.0 */
/* Where an operation slot stands; the host keeps it, and so do kernels. */
#ifndef FERRY_SLOT_STATE_H
#define FERRY_SLOT_STATE_H

enum ferry_slot_state {
	FERRY_SLOT_IDLE,          /* dispatch_send is next */
	FERRY_SLOT_DISPATCH_SENT, /* dispatch_recv is next */
	FERRY_SLOT_DISPATCHED,    /* combine_send or dispatch_send */
	FERRY_SLOT_COMBINE_SENT,  /* combine_recv is next */
};

#endif
