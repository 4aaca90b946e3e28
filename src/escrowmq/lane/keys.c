/* Makes index keys of what they are of. */

#include "keys.h"
#include "apart.h"

/* What an index keeps: abs() of RocketMQ, for which the least integer has none. */
static uint32_t code_of(uint32_t hash)
{
    if (hash < 0x80000000u)
        return hash;
    return hash == 0x80000000u ? 0 : 0u - hash;
}

static void write_key(uint8_t *at, uint32_t hash, int64_t log_offset, int64_t stored_ms)
{
    write_64(write_64(write_32(at, code_of(hash)), log_offset), stored_ms);
}

int add_index_key(PyObject *keys, uint32_t prefix, Span text, int64_t log_offset,
                  int64_t stored_ms)
{
    uint8_t *at = array_room(keys, KEY_SIZE);
    if (at == NULL)
        return -1;
    write_key(at, java_hash(prefix, text), log_offset, stored_ms);
    return 0;
}

/* Of characters that may be more than ASCII, as Java has them: UTF-16, with halves of pairs. */
static int hash_of_text(PyObject *text, uint32_t *hash)
{
    Py_ssize_t size = PyUnicode_GetLength(text);
    for (Py_ssize_t nth = 0; nth < size; nth++) {
        Py_UCS4 unit = PyUnicode_ReadChar(text, nth);
        if (unit == (Py_UCS4)-1 && PyErr_Occurred())
            return -1;
        if (unit > 0xFFFF) {
            *hash = *hash * 31 + (0xD800 + (unit - 0x10000) / 0x400);
            unit = 0xDC00 + unit % 0x400;
        }
        *hash = *hash * 31 + unit;
    }
    return size < 0 ? -1 : 0;
}

/* The same of text, or of bytes, which are text in UTF-8. */
static int hash_of(PyObject *key, uint32_t *hash)
{
    Span text;
    if (PyUnicode_Check(key))
        return hash_of_text(key, hash);
    if (span_of(key, &text) < 0)
        return -1;
    if (is_ascii(text)) {
        *hash = java_hash(*hash, text);
        return 0;
    }
    PyObject *decoded = PyUnicode_DecodeUTF8((const char *)text.at, text.size, NULL);
    int done = decoded == NULL ? -1 : hash_of_text(decoded, hash);
    Py_XDECREF(decoded);
    return done;
}

PyObject *index_key(PyObject *const *args)
{
    uint8_t key[KEY_SIZE];
    int64_t prefix = PyLong_AsLongLong(args[0]), log_offset = PyLong_AsLongLong(args[2]);
    int64_t stored_ms = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred())
        return NULL;
    uint32_t hash = (uint32_t)prefix;
    if (hash_of(args[1], &hash) < 0)
        return NULL;
    write_key(key, hash, log_offset, stored_ms);
    return bytes_of((Span){key, KEY_SIZE});
}
