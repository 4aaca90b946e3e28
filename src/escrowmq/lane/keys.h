/* Keys that wait to be put into an index (store/index_chains.py): one has the hash that the index
   keeps of it, the log offset of its record, and when that was stored. */

#ifndef ESCROWMQ_LANE_KEYS_H
#define ESCROWMQ_LANE_KEYS_H

#include "bytes.h"

enum { KEY_OFFSET_AT = 4, KEY_STORED_AT = 12, KEY_SIZE = 20 };

/* One more at the end of a bytearray, of ASCII behind what has a hash: 0, or -1 with an exception. */
int add_index_key(PyObject *keys, uint32_t prefix, Span text, int64_t log_offset,
                  int64_t stored_ms);

#endif
