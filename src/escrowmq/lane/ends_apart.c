/* Takes ENDs apart. All of it was written by strangers: no length is used before it is known to lie
   within what was read. */

#include "ends.h"

#define SHAPE_NUMBERS 13

static int read_shape(PyObject *tuple, EndShape *shape)
{
    int64_t number[SHAPE_NUMBERS];
    if (span_at(tuple, 0, &shape->front) < 0 || span_at(tuple, 1, &shape->group) < 0)
        return -1;
    for (int nth = 0; nth < SHAPE_NUMBERS; nth++)
        if (number_at(tuple, 2 + nth, 0, INT32_MAX, &number[nth]) < 0)
            return -1;
    Py_ssize_t last = FIXED_SIZE;
    for (int nth = 0; nth < VARIES; nth++) {
        shape->begin[nth] = (Py_ssize_t)number[2 * nth];
        shape->end[nth] = (Py_ssize_t)number[2 * nth + 1];
        if (shape->begin[nth] < last || shape->end[nth] < shape->begin[nth])
            last = PY_SSIZE_T_MAX;
        else
            last = shape->end[nth];
    }
    const int64_t *which = number + 2 * VARIES;
    if (last > shape->front.size || which[0] >= VARIES || which[1] >= VARIES ||
        which[2] >= VARIES) {
        PyErr_SetString(PyExc_ValueError, "the places of an END's shape are out of order");
        return -1;
    }
    shape->queue_offset = (int)which[0];
    shape->log_offset = (int)which[1];
    shape->key = (int)which[2];
    shape->is_commit = which[3] != 0;
    shape->is_one_way = which[4] != 0;
    return 0;
}

int frames_begin(EndFrames *frames, PyObject *const *args)
{
    Span data;
    Py_ssize_t at;
    if (!PyList_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "shapes are a list");
        return -1;
    }
    if (span_of(args[0], &data) < 0)
        return -1;
    at = PyLong_AsSsize_t(args[1]);
    frames->size_max = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return -1;
    if (at < 0 || at > data.size) {
        PyErr_SetString(PyExc_ValueError, "a place beyond the data");
        return -1;
    }
    frames->begin = data.at;
    frames->at = data.at + at;
    frames->end = data.at + data.size;
    EndShapes *shapes = &frames->shapes;
    Py_ssize_t count = PyList_Size(args[3]);
    shapes->given = args[3];
    shapes->count = count < SHAPES_MAX ? (int)count : SHAPES_MAX;
    shapes->last = 0;
    memset(shapes->is_read, 0, sizeof shapes->is_read);
    return 0;
}

static const EndShape *shape_at(EndShapes *shapes, int nth)
{
    if (!shapes->is_read[nth]) {
        PyObject *tuple = PyList_GetItem(shapes->given, nth);
        if (tuple == NULL || read_shape(tuple, &shapes->shape[nth]) < 0)
            return NULL;
        shapes->is_read[nth] = 1;
    }
    return &shapes->shape[nth];
}

static Span differing(const EndShape *shape, const uint8_t *frame, int nth)
{
    return (Span){frame + shape->begin[nth], shape->end[nth] - shape->begin[nth]};
}

/* Whether a frame, which is known to be whole, is of a shape; what differs, if it is. */
static int matches(const EndShape *shape, const uint8_t *frame, Py_ssize_t size, End *found)
{
    Span front = shape->front;
    if (front.size != size || !is_same(frame, front, 8, OPAQUE_AT) ||
        !is_same(frame, front, BEHIND_OPAQUE, shape->begin[0]))
        return 0;
    for (int nth = 0; nth < VARIES; nth++) {
        Py_ssize_t next = nth + 1 < VARIES ? shape->begin[nth + 1] : size;
        if (!is_same(frame, front, shape->end[nth], next) ||
            !is_ascii(differing(shape, frame, nth)))
            return 0;
    }
    found->shape = shape;
    found->end = frame + size;
    found->opaque = (Span){frame + OPAQUE_AT, 4};
    found->key = differing(shape, frame, shape->key);
    return is_number(differing(shape, frame, shape->queue_offset), &found->queue_offset) &&
           is_number(differing(shape, frame, shape->log_offset), &found->log_offset);
}

int next_end(EndFrames *frames, End *found)
{
    const uint8_t *at = frames->at;
    EndShapes *shapes = &frames->shapes;
    Py_ssize_t header_end, size;
    if (!is_frame(at, frames->end, frames->size_max, &header_end, &size) || header_end != size)
        return 0; /* an END has no body */
    for (int tried = 0; tried < shapes->count; tried++) {
        int nth = (shapes->last + tried) % shapes->count;
        const EndShape *shape = shape_at(shapes, nth);
        if (shape == NULL)
            return -1;
        if (matches(shape, at, size, found)) {
            shapes->last = nth;
            frames->at = found->end;
            return 1;
        }
    }
    return 0;
}

const char find_ends_doc[] =
    "find_ends(data, at, size_max, shapes, count_max)\n\nSee lane/native.py.";

PyObject *find_ends(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    EndFrames frames;
    End end;
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "data, at, size_max, shapes, count_max");
        return NULL;
    }
    int64_t left = PyLong_AsLongLong(args[4]);
    if (PyErr_Occurred() || frames_begin(&frames, args) < 0)
        return NULL;
    PyObject *queue_offsets = PyList_New(0), *log_offsets = PyList_New(0), *found = NULL;
    int failed = queue_offsets == NULL || log_offsets == NULL, is_one = 1;
    while (!failed && left-- > 0 && (is_one = next_end(&frames, &end)) > 0)
        failed = append_number(queue_offsets, end.queue_offset) < 0 ||
                 append_number(log_offsets, end.log_offset) < 0;
    if (!failed && is_one >= 0)
        found = PyList_Size(log_offsets) > 0 ? PyTuple_Pack(2, queue_offsets, log_offsets)
                                             : Py_NewRef(Py_None);
    Py_XDECREF(queue_offsets);
    Py_XDECREF(log_offsets);
    return found;
}
