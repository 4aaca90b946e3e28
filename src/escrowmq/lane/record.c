/* Lays out the record of a message, and what leads to it: its unit, and its keys for the index. */

#include "record.h"
#include "keys.h"
#include "work.h"

int add_unit(Tail *tail, int64_t log_offset, int64_t size, int64_t tags_code)
{
    if (tail->units == NULL && (tail->units = PyByteArray_FromStringAndSize(NULL, 0)) == NULL)
        return -1;
    uint8_t *at = array_room(tail->units, UNIT_SIZE);
    if (at == NULL)
        return -1;
    write_64(write_32(write_64(at, log_offset), (uint32_t)size), tags_code);
    tail->queue_offset++;
    return 0;
}

static int add_key(Work *work, const Tail *tail, Span key, int64_t log_offset)
{
    return add_index_key(work->keys, tail->prefix, key, log_offset, work->stored_ms);
}

int add_keys(Work *work, const Tail *tail, const Message *message, int64_t log_offset)
{
    if (add_key(work, tail, message->value[message->plan->key], log_offset) < 0)
        return -1;
    for (int nth = 0; nth < message->keys_count; nth++)
        if (add_key(work, tail, message->key[nth], log_offset) < 0)
            return -1;
    return 0;
}

static uint8_t *write_properties(uint8_t *at, const Work *work, const Message *message,
                                 const Place *half_place)
{
    at = write_span(at, message->properties);
    if (!message->has_last_separator)
        *at++ = 2;
    at = write_span(at, work->suffix);
    if (half_place != NULL) {
        at = write_span(at, work->half_mark);
        at = write_span(at, message->value[message->plan->key]);
        *at++ = 2;
        at = write_span(at, half_place->half_place);
    }
    return at;
}

int64_t properties_size(const Work *work, const Message *message, const Place *half_place)
{
    int64_t size = message->properties.size + !message->has_last_separator + work->suffix.size;
    if (half_place != NULL)
        size += work->half_mark.size + message->value[message->plan->key].size + 1 +
                half_place->half_place.size;
    return size;
}

int64_t add_record(Work *work, const Tail *tail, const Message *message, const Place *half_place)
{
    int64_t size_of_properties = properties_size(work, message, half_place);
    int64_t size = HEAD_SIZE + message->body.size + tail->topic.size + 2 + size_of_properties;
    const Shape *shape = message->shape;
    if (message->body.size < 1 || message->body.size > work->body_size_max ||
        size_of_properties > work->properties_size_max || size > work->room_end - work->log_end ||
        size > INT32_MAX)
        return 0;
    uint8_t *at = pile_room(&work->records, (Py_ssize_t)size);
    if (at == NULL)
        return -1;
    at = write_32(at, (uint32_t)size);
    at = write_32(at, tail->magic);
    at = write_32(at, body_crc(message->body));
    at = write_32(at, (uint32_t)tail->queue_id);
    at = write_32(at, (uint32_t)shape->flag);
    at = write_64(at, tail->queue_offset);
    at = write_64(at, work->log_end);
    at = write_32(at, (uint32_t)(half_place == NULL ? shape->sys_flag : shape->half_sys_flag));
    at = write_64(at, message->born_ms);
    at = write_span(at, work->born_host);
    at = write_64(at, work->stored_ms);
    at = write_span(at, work->store_host);
    at = write_32(at, (uint32_t)shape->reconsume_times);
    at = write_64(at, 0); /* it commits no half */
    at = write_32(at, (uint32_t)message->body.size);
    at = write_span(at, message->body);
    at = write_span(at, tail->topic);
    at = write_16(at, (uint32_t)size_of_properties);
    at = write_properties(at, work, message, half_place);
    work->records.size += (Py_ssize_t)size;
    assert(at == work->records.bytes + work->records.size);
    return size;
}
