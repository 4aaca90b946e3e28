/* Reads the messages of a batch (broker/short_batches.read_batch): all of them, or none. */

#include "sends.h"

#define ENTRY_HEAD_SIZE 20
#define COUNT_MAX 100000

typedef struct {
    Known known;
    Span suffix;
    int64_t body_size_max, properties_size_max, keys_max;
    PyObject *pieces;
    int64_t size; /* of bodies and properties */
} Batch;

static int add_piece(Batch *batch, const Message *message, uint32_t flag)
{
    const Plan *plan = message->plan;
    Span key = message->value[plan->key];
    int64_t code = tags_code_of(message);
    Py_ssize_t size = message->properties.size + !message->has_last_separator + batch->suffix.size;
    PyObject *keys = tuple_of(message->key, message->keys_count);
    PyObject *properties = keys == NULL ? NULL : PyBytes_FromStringAndSize(NULL, size);
    if (properties == NULL) {
        Py_XDECREF(keys);
        return -1;
    }
    uint8_t *at = write_span((uint8_t *)PyBytes_AsString(properties), message->properties);
    if (!message->has_last_separator)
        *at++ = 2;
    write_span(at, batch->suffix);
    PyObject *piece = Py_BuildValue("(y#NLiy#N)", (const char *)message->body.at,
                                    message->body.size, properties, (long long)code,
                                    (int)(int32_t)flag, (const char *)key.at, key.size, keys);
    int done = piece == NULL ? -1 : PyList_Append(batch->pieces, piece);
    Py_XDECREF(piece);
    batch->size += message->body.size + size;
    return done;
}

/* One entry: how many bytes it takes; 0 when it is none to be served here, -1 with an exception. */
static Py_ssize_t read_entry(Batch *batch, const uint8_t *at, Py_ssize_t left)
{
    Message message;
    if (left < ENTRY_HEAD_SIZE + 2)
        return 0;
    int64_t size = (int32_t)read_32(at), body_size = (int32_t)read_32(at + 16);
    if (size < ENTRY_HEAD_SIZE + 2 || size > left || body_size < 1 ||
        body_size > size - ENTRY_HEAD_SIZE - 2 || body_size > batch->body_size_max)
        return 0;
    message.body = (Span){at + ENTRY_HEAD_SIZE, (Py_ssize_t)body_size};
    const uint8_t *behind = at + ENTRY_HEAD_SIZE + body_size;
    Py_ssize_t properties_size = behind[0] << 8 | behind[1];
    if (ENTRY_HEAD_SIZE + body_size + 2 + properties_size != size)
        return 0;
    message.properties = (Span){behind + 2, properties_size};
    int is_plain = read_properties(&batch->known, &message);
    if (is_plain <= 0)
        return is_plain;
    if (message.plan->is_half >= 0 || !find_keys(&message, (int)batch->keys_max) ||
        properties_size + !message.has_last_separator + batch->suffix.size >
            batch->properties_size_max)
        return 0;
    return add_piece(batch, &message, read_32(at + 12)) < 0 ? -1 : (Py_ssize_t)size;
}

static PyObject *read_entries(Batch *batch, Span entries, int64_t count_max)
{
    Py_ssize_t at = 0, taken = 1;
    for (int64_t count = 0; at < entries.size && count < count_max; count++) {
        taken = read_entry(batch, entries.at + at, entries.size - at);
        if (taken <= 0)
            break;
        at += taken;
    }
    if (taken < 0)
        return NULL;
    if (taken == 0 || at < entries.size || at == 0)
        return Py_NewRef(Py_None);
    return Py_BuildValue("(OL)", batch->pieces, (long long)batch->size);
}

const char read_batch_doc[] =
    "read_batch(entries, plans, suffix, limits)\n\nSee broker/short_batches.py.";

PyObject *read_batch(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Batch batch;
    Span entries;
    int64_t count_max;
    if (count != 4 || !PyDict_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "entries, plans, suffix, limits");
        return NULL;
    }
    if (span_of(args[0], &entries) < 0 || span_of(args[2], &batch.suffix) < 0 ||
        number_at(args[3], 0, 0, COUNT_MAX, &count_max) < 0 ||
        number_at(args[3], 1, 0, INT32_MAX / 2, &batch.body_size_max) < 0 ||
        number_at(args[3], 2, 0, INT16_MAX, &batch.properties_size_max) < 0 ||
        number_at(args[3], 3, 0, KEYS_MAX, &batch.keys_max) < 0)
        return NULL;
    batch.size = 0;
    known_begin(&batch.known, NULL, args[1]);
    batch.pieces = PyList_New(0);
    if (batch.pieces == NULL)
        return NULL;
    PyObject *found = read_entries(&batch, entries, count_max);
    known_forget(&batch.known);
    Py_DECREF(batch.pieces);
    return found;
}
