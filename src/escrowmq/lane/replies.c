/* The replies to what was put, messages and batches, as codec/sent_template writes them. */

#include "work.h"

#define BINARY_KIND (1u << 24)
#define ID_SIZE (2 * HEX_SIZE)

/* What stands in a place's replies in front of each value, and behind the last one. */
enum { FRONT, REST, IDS, OFFSET, KEY, JSON_IDS, JSON_OFFSET, JSON_KEY, JSON_OPAQUE, JSON_END };

Py_ssize_t ids_size(int64_t count)
{
    return (Py_ssize_t)count * (ID_SIZE + 1) - 1;
}

uint8_t *write_ids(uint8_t *at, Span host, const uint8_t *units, int64_t count)
{
    uint8_t front[HEX_SIZE];
    write_hex(front, read_64(host.at));
    for (int64_t nth = 0; nth < count; nth++) {
        if (nth > 0)
            *at++ = ',';
        at = write_span(at, (Span){front, HEX_SIZE});
        at = write_hex(at, read_64(units + nth * UNIT_SIZE));
    }
    return at;
}

/* A field's value, with its size in front. */
static uint8_t *write_value(uint8_t *at, Span value)
{
    return write_span(write_32(at, (uint32_t)value.size), value);
}

/* Room for a frame of that size, which counts from now on; its first four bytes are written. */
static uint8_t *begin_frame(Work *work, int64_t size)
{
    uint8_t *at = pile_room(&work->replies, (Py_ssize_t)size);
    if (at == NULL)
        return NULL;
    work->replies.size += (Py_ssize_t)size;
    return write_32(at, (uint32_t)(size - 4));
}

static uint8_t *write_binary(Work *work, const Span *piece, const Sent *sent, Span number)
{
    int64_t fields_size = piece[IDS].size + 4 + ids_size(sent->count) + piece[OFFSET].size + 4 +
                          number.size;
    if (sent->key.size > 0)
        fields_size += piece[KEY].size + 4 + sent->key.size;
    int64_t size = 8 + piece[FRONT].size + 4 + piece[REST].size + 4 + fields_size;
    uint8_t *at = begin_frame(work, size);
    if (at == NULL)
        return NULL;
    at = write_32(at, BINARY_KIND | (uint32_t)(size - 8));
    at = write_span(write_span(write_span(at, piece[FRONT]), sent->opaque), piece[REST]);
    at = write_span(write_32(at, (uint32_t)fields_size), piece[IDS]);
    at = write_32(at, (uint32_t)ids_size(sent->count));
    at = write_ids(at, work->store_host, sent->units, sent->count);
    at = write_value(write_span(at, piece[OFFSET]), number);
    return sent->key.size > 0 ? write_value(write_span(at, piece[KEY]), sent->key) : at;
}

static uint8_t *write_json(Work *work, const Span *piece, const Sent *sent, Span number)
{
    int64_t size = 8 + piece[JSON_IDS].size + ids_size(sent->count) + piece[JSON_OFFSET].size +
                   number.size + piece[JSON_OPAQUE].size + sent->opaque.size +
                   piece[JSON_END].size;
    if (sent->key.size > 0)
        size += piece[JSON_KEY].size + sent->key.size;
    uint8_t *at = begin_frame(work, size);
    if (at == NULL)
        return NULL;
    at = write_span(write_32(at, (uint32_t)(size - 8)), piece[JSON_IDS]);
    at = write_ids(at, work->store_host, sent->units, sent->count);
    at = write_span(write_span(at, piece[JSON_OFFSET]), number);
    if (sent->key.size > 0)
        at = write_span(write_span(at, piece[JSON_KEY]), sent->key);
    at = write_span(write_span(at, piece[JSON_OPAQUE]), sent->opaque);
    return write_span(at, piece[JSON_END]);
}

int add_reply(Work *work, const Place *place, const Sent *sent)
{
    uint8_t digits[NUMBER_SIZE_MAX];
    Span number = {digits, write_digits(digits, sent->queue_offset)};
    uint8_t *at = (sent->is_json ? write_json : write_binary)(work, place->reply, sent, number);
    assert(at == NULL || at == work->replies.bytes + work->replies.size);
    return at == NULL ? -1 : 0;
}
