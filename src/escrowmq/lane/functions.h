/* Every function of the module: its name, how many arguments it takes and which, and what says what it
   does. Declarations, the table of the module and the check of the number are made of this. */

#ifndef ESCROWMQ_LANE_FUNCTIONS_H
#define ESCROWMQ_LANE_FUNCTIONS_H

#define FUNCTIONS(one) \
    one(lay_out_sends, 8, \
        "data, at, size_max, shapes, plans, places, moment, count_max", "lane/native.py") \
    one(find_signed_sends, 5, "data, at, size_max, shapes, count_max", "lane/native.py") \
    one(find_ends, 5, "data, at, size_max, shapes, count_max", "lane/native.py") \
    one(lay_out_ends, 10, \
        "data, at, size_max, shapes, plans, places, moment, log, starts, rules", \
        "lane/native.py") \
    one(index_key, 4, "prefix_hash, key, log_offset, stored_ms", "store/index_chains.py") \
    one(find_blocks, 4, "keys, slots_count, slots_at, block_bits", "store/index_chains.py") \
    one(chain, 6, \
        "memory, keys, slots_count, slots_at, first, begin_ms", "store/index_chains.py") \
    one(lead, 2, "memory, newest", "store/index_chains.py") \
    one(alike_halves, 7, \
        "data, base, entries, first, nth, topic, by_size", "txn/stored_halves.py") \
    one(find_starts, 4, "data, base, mask, kind", "codec/log_records.outline_records") \
    one(find_runs, 5, "units, first, codes, count_max, size_max", "store/unit_runs.select_runs") \
    one(copy_runs, 3, "memory, base, runs", "base/runs.join_runs") \
    one(reply_with_runs, 11, \
        "units, first, codes, count_max, size_max, memory, base, pieces, opaque, low, high", \
        "store/queue_reading.QueueReader.build_reply") \
    one(are_whole, 5, "data, runs, topic, queue_offsets, has_crc", "store/queue_reading") \
    one(find_repeated, 3, "data, at, known", "codec/repeated_requests.RepeatedRequests.find") \
    one(find_records, 1, "data", "pipeline/arrow/columns.py") \
    one(copy_cells, 3, "data, starts, ends", "pipeline/arrow/cells.py") \
    one(copy_numbers, 3, "data, places, width", "pipeline/arrow/cells.py") \
    one(find_entries, 3, "data, starts, ends", "pipeline/arrow/compiled.py") \
    one(copy_named, 4, "data, bounds, entries, name", "pipeline/arrow/compiled.py")

#endif
