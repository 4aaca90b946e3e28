/* Finds requests that are alike. All of them were written by strangers: no length is used before it
   is known to lie within what was read. */

#include "alike.h"
#include "apart.h"

#define OPAQUE_SIZE 4
#define SIZE_SIZE 4 /* in front of a value */
#define CODE_SIZE 5 /* code, language and version, in front of the opaque */
#define FLAG_SIZE 8 /* flag, and size of the remark, behind it */

/* -- shapes ------------------------------------------------------------------------------------ */

static int read_order(Span order, Shape *shape)
{
    int seen = 0;
    for (int nth = 0; nth < shape->count; nth++) {
        shape->order[nth] = order.at[nth];
        if (order.at[nth] >= VALUES_MAX || seen & 1 << order.at[nth])
            return 0;
        seen |= 1 << order.at[nth];
    }
    if (shape->is_json)
        return (seen & 1 << OPAQUE) != 0 && (seen & 1 << FIELDS_SIZE) == 0;
    return shape->count >= OWN && shape->order[0] == OPAQUE && shape->order[1] == FIELDS_SIZE &&
           shape->piece[0].size == CODE_SIZE && shape->piece[1].size == FLAG_SIZE;
}

static int read_alike(PyObject *tuple, Shape *shape)
{
    Span order;
    int64_t is_json;
    PyObject *pieces = PyTuple_GetItem(tuple, 0);
    if (pieces == NULL || span_at(tuple, 1, &order) < 0 || number_at(tuple, 2, 0, 1, &is_json) < 0)
        return -1;
    shape->is_json = (int)is_json;
    shape->count = (int)order.size;
    int is_right = order.size <= VALUES_MAX && PyTuple_Check(pieces) &&
                   PyTuple_Size(pieces) == order.size + 1;
    for (int nth = 0; is_right && nth <= shape->count; nth++) {
        if (span_at(pieces, nth, &shape->piece[nth]) < 0)
            return -1;
        is_right = !shape->is_json || shape->piece[nth].size > 0;
    }
    if (is_right && read_order(order, shape))
        return 0;
    PyErr_SetString(PyExc_ValueError, "a shape's pieces are out of order");
    return -1;
}

static int read_shape(PyObject *tuple, Shape *shape)
{
    int *const numbers[] = {&shape->is_one_way, &shape->may_be_plain, &shape->may_be_half,
                            &shape->is_batch, &shape->wants_id, &shape->is_commit};
    int32_t *const wide[] = {&shape->flag, &shape->sys_flag, &shape->half_sys_flag,
                             &shape->reconsume_times};
    int64_t number;
    if (read_alike(tuple, shape) < 0 || span_at(tuple, 3, &shape->name) < 0)
        return -1;
    for (int nth = 0; nth < 4; nth++) {
        if (number_at(tuple, 4 + nth, INT32_MIN, INT32_MAX, &number) < 0)
            return -1;
        *wide[nth] = (int32_t)number;
    }
    for (int nth = 0; nth < 6; nth++) {
        if (number_at(tuple, 8 + nth, 0, INT32_MAX, &number) < 0)
            return -1;
        *numbers[nth] = number != 0;
    }
    return 0;
}

int frames_begin(Frames *frames, PyObject *const *args, PyObject *count_max)
{
    Span data;
    frames->texts = (Pile){NULL, 0, 0};
    frames->begin = frames->at = NULL;
    frames->given = args[3];
    frames->last = 0;
    if (!PyList_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "shapes are a list");
        return -1;
    }
    if (span_of(args[0], &data) < 0)
        return -1;
    Py_ssize_t at = PyLong_AsSsize_t(args[1]), count = PyList_Size(args[3]);
    frames->size_max = PyLong_AsLongLong(args[2]);
    frames->left = count_max == NULL ? INT64_MAX : PyLong_AsLongLong(count_max);
    if (PyErr_Occurred())
        return -1;
    if (at < 0 || at > data.size) {
        PyErr_SetString(PyExc_ValueError, "a place beyond the data");
        return -1;
    }
    frames->begin = data.at;
    frames->at = data.at + at;
    frames->end = data.at + data.size;
    frames->count = count < SHAPES_MAX ? (int)count : SHAPES_MAX;
    memset(frames->is_read, 0, sizeof frames->is_read);
    return 0;
}

void frames_forget(Frames *frames)
{
    PyMem_Free(frames->texts.bytes);
}

static const Shape *shape_at(Frames *frames, int nth)
{
    if (!frames->is_read[nth]) {
        PyObject *tuple = PyList_GetItem(frames->given, nth);
        if (tuple == NULL || read_shape(tuple, &frames->shape[nth]) < 0)
            return NULL;
        frames->is_read[nth] = 1;
    }
    return &frames->shape[nth];
}

/* -- values in JSON ---------------------------------------------------------------------------- */

/* Text of ASCII as it is in JSON, whose separators alone are escaped: 1, and what it says, which is
   good until the next request; 0 when there is more to it, -1 with an exception. */
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

/* Text that is the same in JSON and outside of it. */
static int is_literal(Span text)
{
    for (Py_ssize_t nth = 0; nth < text.size; nth++)
        if (text.at[nth] < 0x20 || text.at[nth] > 0x7E || text.at[nth] == '\\')
            return 0;
    return 1;
}

/* A number, or text up to a quote. */
static int cut_json(const uint8_t *at, const uint8_t *end, int which, Span *found)
{
    const uint8_t *stop = at;
    if (which != OPAQUE)
        stop = memchr(at, '"', (size_t)(end - at));
    else
        while (stop < end && *stop >= '0' && *stop <= '9')
            stop++;
    if (stop == NULL)
        return 0;
    *found = (Span){at, stop - at};
    return which == PROPERTIES || is_literal(*found);
}

/* -- requests ---------------------------------------------------------------------------------- */

/* A value of a binary header, and how many bytes stand in front of it; -1 when there is none. */
static int cut_binary(const uint8_t *at, const uint8_t *end, int which, Span *found)
{
    if (end - at < SIZE_SIZE)
        return -1;
    *found = (Span){at, OPAQUE_SIZE};
    uint32_t size = read_32(at);
    if (which == OPAQUE)
        return 0;
    if (which == FIELDS_SIZE)
        return (int64_t)size == end - at - SIZE_SIZE ? 0 : -1;
    if ((int64_t)size > end - at - SIZE_SIZE)
        return -1;
    *found = (Span){at + SIZE_SIZE, (Py_ssize_t)size};
    return SIZE_SIZE;
}

static int matches(const Shape *shape, const uint8_t *at, const uint8_t *end, Span *value)
{
    for (int nth = 0;; nth++) {
        Span piece = shape->piece[nth];
        if (end - at < piece.size || memcmp(at, piece.at, (size_t)piece.size) != 0)
            return 0;
        at += piece.size;
        if (nth == shape->count)
            return at == end;
        int which = shape->order[nth];
        if (shape->is_json) {
            if (!cut_json(at, end, which, &value[which]))
                return 0;
            at += value[which].size;
        } else {
            int skipped = cut_binary(at, end, which, &value[which]);
            if (skipped < 0)
                return 0;
            at += skipped + value[which].size;
        }
    }
}

/* A request in JSON with the texts that it means: as next_request returns. Whether the third value
   is a send's properties makes no difference to the key of an END. */
static int read_json(Frames *frames, Request *found)
{
    int64_t opaque;
    Span properties = found->value[PROPERTIES];
    if (!is_number(found->value[OPAQUE], &opaque) || opaque > INT32_MAX)
        return 0;
    return plain_text(&frames->texts, properties, &found->value[PROPERTIES]);
}

int next_request(Frames *frames, Request *found)
{
    const uint8_t *at = frames->at;
    if (frames->left <= 0 || frames->end - at < 8 || at[4] > 1)
        return 0;
    frames->left--;
    int64_t size = read_32(at), header_size = read_32(at + 4) & 0xFFFFFF;
    if (size > frames->end - at - 4 || 4 + header_size > size || size + 4 > frames->size_max)
        return 0;
    const uint8_t *header_end = at + 8 + header_size;
    int is_json = at[4] == 0;
    for (int tried = 0; tried < frames->count; tried++) {
        int nth = (frames->last + tried) % frames->count;
        const Shape *shape = shape_at(frames, nth);
        if (shape == NULL)
            return -1;
        memset(found->value, 0, sizeof found->value);
        if (shape->is_json != is_json || !matches(shape, at + 8, header_end, found->value))
            continue;
        frames->last = nth;
        found->shape = shape;
        found->end = at + 4 + size;
        found->body = (Span){header_end, found->end - header_end};
        int is_read = is_json ? read_json(frames, found) : 1;
        if (is_read > 0)
            frames->at = found->end;
        return is_read;
    }
    return 0;
}
