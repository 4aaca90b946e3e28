/* The reply to a pull with the records behind it, as codec/pulled_reply and base/runs make them. */

#include "runs.h"

#define BINARY_KIND (1u << 24)
#define FRONT_SIZE 8 /* sizes of frame and header */
#define OPAQUE_SIZE 4
#define NUMBER_SIZE 4 /* of the size that stands in front of a field's value */
#define HEADER_SIZE_MAX 65536
#define BODY_SIZE_MAX (8 * 1024 * 1024) /* codec/pulled_reply.BODY_SIZE_MAX */

/* What stands in front of the opaque, of the fields, of each offset, and behind the last one. */
enum { FRONT, REST, NEXT, LOW, HIGH, END, PIECES };
#define OFFSETS 3

typedef struct {
    Span piece[PIECES];
    uint32_t opaque;
    int64_t low, high;
    Py_buffer memory;
    int64_t base;
} Reply;

/* The memory is held, and is to be given back, when this is 0. */
static int reply_of(PyObject *const *args, Reply *reply)
{
    if (!PyTuple_Check(args[2]) || PyTuple_Size(args[2]) != PIECES) {
        PyErr_SetString(PyExc_TypeError, "a reply has six pieces");
        return -1;
    }
    Py_ssize_t size = 0;
    for (int nth = 0; nth < PIECES; nth++) {
        if (span_of(PyTuple_GetItem(args[2], nth), &reply->piece[nth]) < 0)
            return -1;
        if (reply->piece[nth].size > HEADER_SIZE_MAX - size) {
            PyErr_SetString(PyExc_ValueError, "the pieces are too long for a header");
            return -1;
        }
        size += reply->piece[nth].size;
    }
    long long opaque = PyLong_AsLongLong(args[3]);
    reply->base = PyLong_AsLongLong(args[1]);
    reply->low = PyLong_AsLongLong(args[4]);
    reply->high = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred())
        return -1;
    if (reply->base < 0 || opaque < INT32_MIN || opaque > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a place in front of all, or no opaque");
        return -1;
    }
    reply->opaque = (uint32_t)opaque;
    return PyObject_GetBuffer(args[0], &reply->memory, PyBUF_SIMPLE);
}

static PyObject *frame_of(const Reply *reply, int64_t following, Span runs, Py_ssize_t body_size)
{
    const Span *piece = reply->piece;
    int64_t offsets[OFFSETS] = {following, reply->low, reply->high};
    uint8_t digits[OFFSETS][NUMBER_SIZE_MAX];
    Span numbers[OFFSETS];
    Py_ssize_t fields_size = piece[END].size;
    for (int nth = 0; nth < OFFSETS; nth++) {
        numbers[nth] = (Span){digits[nth], write_digits(digits[nth], offsets[nth])};
        fields_size += piece[NEXT + nth].size + NUMBER_SIZE + numbers[nth].size;
    }
    Py_ssize_t header_size =
        piece[FRONT].size + OPAQUE_SIZE + piece[REST].size + NUMBER_SIZE + fields_size;
    Py_ssize_t size = FRONT_SIZE + header_size + body_size;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, size);
    if (frame == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AsString(frame);
    at = write_32(write_32(at, (uint32_t)(size - 4)), BINARY_KIND | (uint32_t)header_size);
    at = write_span(write_32(write_span(at, piece[FRONT]), reply->opaque), piece[REST]);
    at = write_32(at, (uint32_t)fields_size);
    for (int nth = 0; nth < OFFSETS; nth++) {
        at = write_32(write_span(at, piece[NEXT + nth]), (uint32_t)numbers[nth].size);
        at = write_span(at, numbers[nth]);
    }
    at = write_span(at, piece[END]);
    write_runs(at, reply->memory.buf, reply->base, runs);
    return frame;
}

static PyObject *pulled_of(const Reply *reply, const Chosen *chosen)
{
    Span runs = {chosen->runs.bytes, chosen->runs.size};
    Py_ssize_t body_size = size_of_runs(runs, reply->base, reply->memory.len);
    if (chosen->count == 0 || body_size < 0 || body_size > BODY_SIZE_MAX)
        return Py_NewRef(Py_None);
    PyObject *frame = frame_of(reply, chosen->at, runs, body_size);
    if (frame == NULL)
        return NULL;
    PyObject *found[] = {frame, PyLong_FromLongLong(chosen->count), PyLong_FromSsize_t(body_size),
                         PyLong_FromLongLong(chosen->at)};
    return tuple_taking(found, 4);
}

const char reply_with_runs_doc[] =
    "reply_with_runs(units, first, codes, count_max, size_max, memory, base, pieces, opaque, low, "
    "high)\n\nSee store/queue_reading.QueueReader.reply.";

PyObject *reply_with_runs(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Reply reply;
    if (count != 11) {
        PyErr_SetString(PyExc_TypeError, "what find_runs wants, and six more");
        return NULL;
    }
    if (reply_of(args + 5, &reply) < 0)
        return NULL;
    Chosen chosen;
    int done = choose_units(args, &chosen);
    PyObject *found = done > 0 ? pulled_of(&reply, &chosen) : done == 0 ? Py_NewRef(Py_None) : NULL;
    forget_chosen(&chosen);
    PyBuffer_Release(&reply.memory);
    return found;
}
