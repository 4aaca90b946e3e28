/* Takes send requests apart whose headers are in JSON: one that is like another is the same text but
   for four values (codec/json_shapes says why that is enough). */

#include "apart.h"

int read_json_shape(PyObject *pieces, PyObject *order, Shape *shape)
{
    Span which;
    int seen = 0;
    for (int nth = 0; nth <= JSON_VARIES; nth++) {
        if (span_at(pieces, nth, &shape->piece[nth]) < 0)
            return -1;
        if (shape->piece[nth].size == 0)
            goto odd;
    }
    if (span_of(order, &which) < 0)
        return -1;
    for (int nth = 0; which.size == JSON_VARIES && nth < JSON_VARIES; nth++) {
        shape->order[nth] = which.at[nth];
        seen |= which.at[nth] < JSON_VARIES ? 1 << which.at[nth] : 0;
    }
    if (seen == (1 << JSON_VARIES) - 1)
        return 0;
odd:
    PyErr_SetString(PyExc_ValueError, "a shape's pieces are out of order");
    return -1;
}

/* Text of ASCII as it is in JSON, whose separators alone are escaped: 1, and what it says, which is
   good until the next one; 0 when there is more to it, -1 with an exception. */
static int plain_text(Pile *texts, Span text, Span *found)
{
    texts->size = 0;
    uint8_t *out = pile_room(texts, text.size + 1);
    if (out == NULL)
        return -1;
    const uint8_t *at = text.at, *end = text.at + text.size;
    found->at = out;
    while (at < end) {
        const uint8_t *stop = memchr(at, '\\', (size_t)(end - at));
        if (stop == NULL)
            stop = end;
        int is_odd = 0;
        for (const uint8_t *one = at; one < stop; one++)
            is_odd |= *one < 0x20;
        if (is_odd)
            return 0;
        out = write_span(out, (Span){at, stop - at});
        if (stop == end)
            break;
        if (end - stop < 6 || memcmp(stop, "\\u000", 5) != 0 || (stop[5] != '1' && stop[5] != '2'))
            return 0;
        *out++ = (uint8_t)(stop[5] - '0');
        at = stop + 6;
    }
    found->size = out - found->at;
    return 1;
}

/* Where a value ends that begins there, by what it is. */
static const uint8_t *end_of(const uint8_t *at, const uint8_t *end, int which)
{
    if (which != JSON_OPAQUE_VALUE)
        return memchr(at, '"', (size_t)(end - at));
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

int matches_json(const Shape *shape, Span header, Pile *texts, Message *found)
{
    Span value[JSON_VARIES];
    const uint8_t *at = header.at, *end = header.at + header.size;
    for (int nth = 0; nth <= JSON_VARIES; nth++) {
        Span piece = shape->piece[nth];
        if (end - at < piece.size || memcmp(at, piece.at, (size_t)piece.size) != 0)
            return 0;
        at += piece.size;
        if (nth == JSON_VARIES)
            break;
        const uint8_t *stop = end_of(at, end, shape->order[nth]);
        if (stop == NULL)
            return 0;
        value[shape->order[nth]] = (Span){at, stop - at};
        at = stop;
    }
    int64_t opaque;
    if (at != end || !is_number(value[JSON_OPAQUE_VALUE], &opaque) || opaque > INT32_MAX)
        return 0;
    found->shape = shape;
    found->queue = value[0];
    found->born = value[1];
    found->opaque = value[JSON_OPAQUE_VALUE];
    return plain_text(texts, value[2], &found->properties);
}
