/* Lays out records, all of them, and what leads to them: their units, and their keys for the index. */

#include "record.h"
#include "keys.h"
#include "work.h"

static int add_unit(Tail *tail, int64_t log_offset, int64_t size, int64_t tags_code)
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

static int add_keys(Work *work, const Tail *tail, const Message *message, int64_t log_offset)
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

int64_t begin_record(Work *work, const Tail *tail, const Head *head, int64_t properties_size,
                     uint8_t **properties)
{
    int64_t size = HEAD_SIZE + head->body.size + tail->topic.size + 2 + properties_size;
    if (head->body.size < 1 || head->body.size > work->body_size_max ||
        properties_size > work->properties_size_max || size > work->room_end - work->log_end ||
        size > INT32_MAX)
        return 0;
    uint8_t *at = pile_room(&work->records, (Py_ssize_t)size);
    if (at == NULL)
        return -1;
    at = write_32(at, (uint32_t)size);
    at = write_32(at, tail->magic);
    at = write_32(at, head->crc);
    at = write_32(at, (uint32_t)tail->queue_id);
    at = write_32(at, head->flag);
    at = write_64(at, tail->queue_offset);
    at = write_64(at, work->log_end);
    at = write_32(at, head->sys_flag);
    at = write_span(at, head->born);
    at = write_64(at, work->stored_ms);
    at = write_span(at, work->store_host);
    at = write_32(at, head->reconsume_times);
    at = write_64(at, head->prepared_at);
    at = write_32(at, (uint32_t)head->body.size);
    at = write_span(at, head->body);
    at = write_span(at, tail->topic);
    *properties = write_16(at, (uint32_t)properties_size);
    work->records.size += (Py_ssize_t)size;
    return size;
}

int64_t add_record(Work *work, const Tail *tail, const Message *message, const Place *half_place)
{
    const Shape *shape = message->shape;
    uint8_t born[BORN_SIZE], *at;
    write_span(write_64(born, message->born_ms), work->born_host);
    Head head = {message->body, {born, BORN_SIZE}, body_crc(message->body), (uint32_t)shape->flag,
                 (uint32_t)(half_place == NULL ? shape->sys_flag : shape->half_sys_flag),
                 (uint32_t)shape->reconsume_times, 0};
    int64_t size = begin_record(work, tail, &head, properties_size(work, message, half_place), &at);
    if (size > 0) {
        at = write_properties(at, work, message, half_place);
        assert(at == work->records.bytes + work->records.size);
    }
    return size;
}

int lead_to_record(Work *work, Tail *tail, const Message *message, int64_t size)
{
    if (add_unit(tail, work->log_end, size, tags_code_of(message)) < 0 ||
        add_keys(work, tail, message, work->log_end) < 0)
        return -1;
    work->log_end += size;
    return 0;
}
