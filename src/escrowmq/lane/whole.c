/* Whether records that were read are what the units of a queue promise (codec/log_records.match_queue_entries). */

#include "record.h"
#include "runs.h"

#define CRC_PROPERTY_SIZE 20
#define PROPERTIES_SIZE 2

static const char crc_mark[] = "__CRC32#\x01";

/* Of all records. */
typedef struct {
    Span topic;
    PyObject *offsets; /* a sequence */
    Py_ssize_t count, nth;
    int has_crc; /* a record may end with one of its own, which is looked at elsewhere */
} Promised;

/* The queue offset of the present record; -1 with an exception. */
static int64_t promised_offset(Promised *promised)
{
    PyObject *item = PySequence_GetItem(promised->offsets, promised->nth);
    int64_t offset = item == NULL ? -1 : PyLong_AsLongLong(item);
    Py_XDECREF(item);
    return offset;
}

static int has_mark(const uint8_t *end)
{
    return memcmp(end - CRC_PROPERTY_SIZE, crc_mark, sizeof crc_mark - 1) == 0;
}

/* Its body, topic and properties fill a record of that size, and are right. */
static int is_filled(const uint8_t *at, Py_ssize_t size, Span topic)
{
    int64_t body_size = (int32_t)read_32(at + BODY_SIZE_AT);
    if (body_size < 0 || HEAD_SIZE + body_size + 1 + PROPERTIES_SIZE > size)
        return 0;
    const uint8_t *topic_at = at + HEAD_SIZE + body_size + 1, *end = at + size;
    Py_ssize_t topic_size = topic_at[-1];
    if (topic_size > end - topic_at - PROPERTIES_SIZE)
        return 0;
    const uint8_t *properties_at = topic_at + topic_size;
    Span body = {at + HEAD_SIZE, (Py_ssize_t)body_size};
    return (Py_ssize_t)read_16(properties_at) == end - properties_at - PROPERTIES_SIZE &&
           span_equals((Span){topic_at, topic_size}, topic) && body_crc(body) == read_32(at + CRC_AT);
}

/* 1 when a run has whole records of the usual kind alone; 0 when it has not, or -1. */
static int is_run_whole(const uint8_t *at, int64_t place, int64_t size, Promised *promised)
{
    const uint8_t *end = at + size;
    while (at < end) {
        if (end - at < RECORD_SIZE_MIN || promised->nth >= promised->count)
            return 0;
        int64_t record_size = read_32(at), offset = promised_offset(promised);
        if (offset == -1 && PyErr_Occurred())
            return -1;
        if (record_size < RECORD_SIZE_MIN || record_size > end - at ||
            read_32(at + MAGIC_AT) != MAGIC_V1 || read_64(at + QUEUE_OFFSET_AT) != offset ||
            read_64(at + LOG_OFFSET_AT) != place || read_32(at + SYS_FLAG_AT) & HOSTS_V6 ||
            (promised->has_crc && has_mark(at + record_size)) ||
            !is_filled(at, (Py_ssize_t)record_size, promised->topic))
            return 0;
        promised->nth++;
        at += record_size;
        place += record_size;
    }
    return 1;
}

static int are_runs_whole(Span data, Span runs, Promised *promised)
{
    const uint8_t *at = data.at, *end = data.at + data.size;
    for (Py_ssize_t i = 0; i < runs.size; i += sizeof(Run)) {
        Run run = run_at(runs, i);
        if (run.place < 0 || run.size < 0 || run.size > end - at || run.place > INT64_MAX - run.size)
            return 0;
        int is_whole = is_run_whole(at, run.place, run.size, promised);
        if (is_whole <= 0)
            return is_whole;
        at += run.size;
    }
    return at == end && promised->nth == promised->count;
}

PyObject *are_whole(PyObject *const *args)
{
    Span data, runs;
    Promised promised = {0};
    if (span_of(args[0], &data) < 0 || span_of_runs(args[1], &runs) < 0 ||
        span_of(args[2], &promised.topic) < 0)
        return NULL;
    promised.offsets = args[3];
    promised.count = PySequence_Size(args[3]);
    promised.has_crc = PyObject_IsTrue(args[4]);
    if (promised.count < 0 || promised.has_crc < 0)
        return NULL;
    int is_whole = are_runs_whole(data, runs, &promised);
    return is_whole < 0 ? NULL : PyBool_FromLong(is_whole);
}
