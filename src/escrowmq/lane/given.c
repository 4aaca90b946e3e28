/* Reads what requests are laid out with (lane/native.LaneLimits, LaneQueue and LaneTail). */

#include "work.h"

#define HOST_SIZE 8
#define BATCH_MAX 100000

static PyObject *units_name, *queue_name, *next_offset_name;

int given_prepare(void)
{
    units_name = PyUnicode_InternFromString("units");
    queue_name = PyUnicode_InternFromString("queue");
    next_offset_name = PyUnicode_InternFromString("next_offset");
    return units_name == NULL || queue_name == NULL || next_offset_name == NULL ? -1 : 0;
}

/* An attribute that is a number of 64 bits; -1 with an error when there is none. */
static int64_t number_of(PyObject *object, PyObject *name)
{
    PyObject *number = PyObject_GetAttr(object, name);
    if (number == NULL)
        return -1;
    int64_t found = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return found;
}

/* The queue offset of the next record of a QueueTail (store/record_run): its own once something was put, and
   before that the queue's, which others move. Measured: to call a property of it takes longer. */
static int64_t upcoming(PyObject *held)
{
    PyObject *units = PyObject_GetAttr(held, units_name);
    if (units == NULL)
        return -1;
    Py_ssize_t size = PyObject_Size(units);
    Py_DECREF(units);
    if (size != 0)
        return size < 0 ? -1 : number_of(held, next_offset_name);
    PyObject *queue = PyObject_GetAttr(held, queue_name);
    if (queue == NULL)
        return -1;
    int64_t found = number_of(queue, next_offset_name);
    Py_DECREF(queue);
    return found;
}

static int read_tail(PyObject *tuple, Tail *tail)
{
    int64_t magic, queue_id, prefix;
    PyObject *held = PyTuple_GetItem(tuple, 0);
    if (held == NULL || span_at(tuple, 1, &tail->topic) < 0 ||
        number_at(tuple, 2, 0, UINT32_MAX, &magic) < 0 ||
        number_at(tuple, 3, 0, INT32_MAX, &queue_id) < 0 ||
        number_at(tuple, 4, INT32_MIN, INT32_MAX, &prefix) < 0)
        return -1;
    tail->queue_offset = upcoming(held);
    if (tail->queue_offset < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a queue's end is negative");
        return -1;
    }
    tail->magic = (uint32_t)magic;
    tail->prefix = (uint32_t)prefix;
    tail->queue_id = (int32_t)queue_id;
    Py_INCREF(held);
    tail->tail = held;
    return 0;
}

static void forget_tail(Tail *tail)
{
    Py_XDECREF(tail->tail);
    Py_XDECREF(tail->units);
}

static int read_place(PyObject *tuple, Place *place)
{
    PyObject *tail = PyTuple_GetItem(tuple, 1), *reply = PyTuple_GetItem(tuple, 4);
    if (tail == NULL || reply == NULL ||
        (place->target = PyTuple_GetItem(tuple, 0)) == NULL ||
        (place->topic = PyTuple_GetItem(tuple, 2)) == NULL ||
        number_at(tuple, 3, 0, INT32_MAX, &place->queue_id) < 0 ||
        span_at(tuple, 5, &place->half_place) < 0)
        return -1;
    if (read_template(reply, 3, &place->reply) < 0)
        return -1;
    if (tail != Py_None) {
        if (read_tail(tail, &place->tail) < 0)
            return -1;
        place->has_tail = 1;
    }
    Py_INCREF(tuple);
    place->given = tuple;
    return 0;
}

static int read_moment(Work *work, PyObject *moment)
{
    PyObject *half_tail = PyTuple_GetItem(moment, 12);
    if (half_tail == NULL || number_at(moment, 0, 0, INT64_MAX / 4, &work->log_end) < 0 ||
        number_at(moment, 1, 0, INT64_MAX / 4, &work->room_end) < 0 ||
        number_at(moment, 2, INT64_MIN, INT64_MAX, &work->stored_ms) < 0 ||
        span_at(moment, 3, &work->store_host) < 0 || span_at(moment, 4, &work->born_host) < 0 ||
        span_at(moment, 5, &work->suffix) < 0 || span_at(moment, 6, &work->half_mark) < 0 ||
        number_at(moment, 7, 0, INT32_MAX / 2, &work->body_size_max) < 0 ||
        number_at(moment, 8, 0, INT16_MAX, &work->properties_size_max) < 0 ||
        number_at(moment, 9, 0, KEYS_MAX, &work->keys_max) < 0 ||
        number_at(moment, 10, 0, INT64_MAX, &work->halves_max) < 0 ||
        number_at(moment, 13, 0, BATCH_MAX, &work->batch_max) < 0)
        return -1;
    work->stored_ms_given = PyTuple_GetItem(moment, 2);
    work->store_host_given = PyTuple_GetItem(moment, 3);
    work->born_host_given = PyTuple_GetItem(moment, 4);
    work->groups = PyTuple_GetItem(moment, 11);
    work->unnamed = PyTuple_GetItem(moment, 14);
    if (work->unnamed == NULL)
        return -1;
    if (work->store_host.size != HOST_SIZE || work->born_host.size != HOST_SIZE) {
        PyErr_SetString(PyExc_ValueError, "an address is none of IPv4");
        return -1;
    }
    if (half_tail != Py_None) {
        if (read_tail(half_tail, &work->half_tail) < 0)
            return -1;
        work->has_half_tail = 1;
    }
    return 0;
}

int work_begin(Work *work, PyObject *const *args, PyObject *count_max)
{
    memset(work, 0, offsetof(Work, frames));
    known_begin(&work->known, args[4]);
    work->places = args[5];
    if (frames_begin(&work->frames, args, count_max) < 0)
        return -1;
    if (!PyDict_Check(args[4]) || !PyDict_Check(args[5])) {
        PyErr_SetString(PyExc_TypeError, "plans and places are dictionaries");
        return -1;
    }
    work->keys = PyByteArray_FromStringAndSize(NULL, 0);
    work->halves = PyList_New(0);
    if (work->keys == NULL || work->halves == NULL)
        return -1;
    return read_moment(work, args[6]);
}

void work_forget(Work *work)
{
    known_forget(&work->known);
    frames_forget(&work->frames);
    for (int nth = 0; nth < work->places_count; nth++) {
        Place *place = &work->place[nth];
        forget_tail(&place->tail);
        Py_XDECREF(place->sizes);
        Py_XDECREF(place->given);
    }
    forget_tail(&work->half_tail);
    Py_XDECREF(work->keys);
    Py_XDECREF(work->halves);
    Py_XDECREF(work->batches);
    PyMem_Free(work->records.bytes);
    PyMem_Free(work->replies.bytes);
    PyMem_Free(work->ids.bytes);
}

PyObject *tails_of(const Work *work)
{
    PyObject *tails = PyList_New(0);
    int failed = tails == NULL;
    for (int nth = 0; !failed && nth <= work->places_count; nth++) {
        const Tail *tail = nth < work->places_count ? &work->place[nth].tail : &work->half_tail;
        failed = add_pair(tails, tail->tail, tail->units) < 0;
    }
    if (failed)
        Py_CLEAR(tails);
    return tails;
}

int work_new_place(Work *work, PyObject *name, Place **found)
{
    if (work->places_count == PLACES_MAX)
        return 0;
    PyObject *tuple = PyDict_GetItemWithError(work->places, name);
    if (tuple == NULL)
        return PyErr_Occurred() ? -1 : 0;
    Place *place = &work->place[work->places_count++];
    memset(place, 0, sizeof *place);
    *found = place;
    return read_place(tuple, place) < 0 ? -1 : 1;
}

int work_place(Work *work, const Message *message, Place **found)
{
    Span topic = message->shape->name;
    for (int nth = 0; nth < work->places_count; nth++) {
        Place *place = &work->place[nth];
        if (span_equals(place->asked_queue, message->queue) &&
            span_equals(place->asked_topic, topic)) {
            *found = place;
            return 1;
        }
    }
    PyObject *name = PyBytes_FromStringAndSize(NULL, topic.size + message->queue.size);
    if (name == NULL)
        return -1;
    uint8_t *bytes = (uint8_t *)PyBytes_AsString(name);
    write_span(write_span(bytes, topic), message->queue);
    int is_known = work_new_place(work, name, found);
    Py_DECREF(name);
    if (is_known > 0) {
        (*found)->asked_topic = topic;
        (*found)->asked_queue = message->queue;
    }
    return is_known;
}
