/* The reply to a pull with the records behind it, as codec/pulled_reply and base/runs make them. */

#include "replies.h"
#include "runs.h"

#define BODY_SIZE_MAX (8 * 1024 * 1024) /* codec/pulled_reply.BODY_SIZE_MAX */
#define OFFSETS 3

typedef struct {
    Template template;
    uint8_t opaque[4];
    int64_t low, high;
    Py_buffer memory;
    int64_t base;
} Pulled;

/* The memory is held, and is to be given back, when this is 0. */
static int pulled_begin(PyObject *const *args, Pulled *pulled)
{
    if (read_template(args[2], OFFSETS, &pulled->template) < 0)
        return -1;
    long long opaque = PyLong_AsLongLong(args[3]);
    pulled->base = PyLong_AsLongLong(args[1]);
    pulled->low = PyLong_AsLongLong(args[4]);
    pulled->high = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred())
        return -1;
    if (pulled->base < 0 || opaque < INT32_MIN || opaque > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a place in front of all, or no opaque");
        return -1;
    }
    write_32(pulled->opaque, (uint32_t)opaque);
    return PyObject_GetBuffer(args[0], &pulled->memory, PyBUF_SIMPLE);
}

static PyObject *frame_of(const Pulled *pulled, int64_t following, Span runs, Py_ssize_t body_size)
{
    int64_t offsets[OFFSETS] = {following, pulled->low, pulled->high};
    uint8_t digits[OFFSETS][NUMBER_SIZE_MAX];
    Reply reply = {0, OFFSETS, {pulled->opaque, 4}, {{NULL, 0}}, body_size};
    for (int nth = 0; nth < OFFSETS; nth++)
        reply.value[nth] = (Span){digits[nth], write_digits(digits[nth], offsets[nth])};
    PyObject *frame = PyBytes_FromStringAndSize(NULL, reply_size(&pulled->template, &reply));
    if (frame != NULL)
        write_runs(write_reply((uint8_t *)PyBytes_AsString(frame), &pulled->template, &reply),
                   pulled->memory.buf, pulled->base, runs);
    return frame;
}

static PyObject *pulled_of(const Pulled *pulled, const Chosen *chosen)
{
    Span runs = {chosen->runs.bytes, chosen->runs.size};
    Py_ssize_t body_size = size_of_runs(runs, pulled->base, pulled->memory.len);
    if (chosen->count == 0 || body_size < 0 || body_size > BODY_SIZE_MAX)
        return Py_NewRef(Py_None);
    PyObject *frame = frame_of(pulled, chosen->at, runs, body_size);
    if (frame == NULL)
        return NULL;
    PyObject *found[] = {frame, PyLong_FromLongLong(chosen->count), PyLong_FromSsize_t(body_size),
                         PyLong_FromLongLong(chosen->at)};
    return tuple_taking(found, 4);
}

PyObject *reply_with_runs(PyObject *const *args)
{
    Pulled pulled;
    if (pulled_begin(args + 5, &pulled) < 0)
        return NULL;
    Chosen chosen;
    int done = choose_units(args, &chosen);
    PyObject *found = done > 0 ? pulled_of(&pulled, &chosen) : done == 0 ? Py_NewRef(Py_None) : NULL;
    forget_chosen(&chosen);
    PyBuffer_Release(&pulled.memory);
    return found;
}
