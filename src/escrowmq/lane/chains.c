/* What an index file gets for keys (keys.h, store/index_chains.py): entries that stand in front of
   those that are there. The file lies in memory; newest entries of slots are pairs of numbers of 32
   bits, as this machine writes them. */

#include "keys.h"

#define ENTRY_SIZE 20
#define HEAD_SIZE 4
#define SECONDS_MAX 0x7FFFFFFF
#define MANY_MAX (INT32_MAX / 64)

/* The slots of a file. */
typedef struct {
    uint32_t count, at;
} Slots;

typedef struct {
    uint32_t place, number; /* of a slot, and of the newest entry that it leads to */
} Newest;

/* The newest entries of slots, found by their places: what `at` has is one more than which. */
typedef struct {
    Newest *newest;
    uint32_t *at, mask;
    Py_ssize_t count;
} Table;

/* -- slots ------------------------------------------------------------------------------------- */

/* 1; 0 when the places of some have more than 32 bits, -1 with an exception. */
static int read_slots(PyObject *count, PyObject *at, Slots *found)
{
    int64_t slots_count = PyLong_AsLongLong(count), slots_at = PyLong_AsLongLong(at);
    if (PyErr_Occurred())
        return -1;
    if (slots_count < 1 || slots_count > INT32_MAX || slots_at < 0 || slots_at > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "slots are out of range");
        return -1;
    }
    if (slots_at + slots_count * HEAD_SIZE > UINT32_MAX)
        return 0;
    *found = (Slots){(uint32_t)slots_count, (uint32_t)slots_at};
    return 1;
}

static uint32_t place_of(uint32_t code, Slots slots)
{
    return slots.at + code % slots.count * HEAD_SIZE;
}

/* Whole keys, not too many: 0, or -1 with an exception. */
static int read_keys(PyObject *given, Span *keys)
{
    if (span_of(given, keys) < 0)
        return -1;
    if (keys->size % KEY_SIZE == 0 && keys->size / KEY_SIZE <= MANY_MAX)
        return 0;
    PyErr_SetString(PyExc_ValueError, "these are no whole keys, or too many");
    return -1;
}

static int add_block(PyObject *blocks, uint32_t block)
{
    PyObject *made = PyLong_FromUnsignedLong(block);
    int done = made == NULL ? -1 : PySet_Add(blocks, made);
    Py_XDECREF(made);
    return done;
}

PyObject *find_blocks(PyObject *const *args)
{
    Span keys;
    Slots slots;
    int64_t block_bits = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred() || read_keys(args[0], &keys) < 0)
        return NULL;
    if (block_bits < 0 || block_bits > 31) {
        PyErr_SetString(PyExc_ValueError, "blocks are out of range");
        return NULL;
    }
    int are_near = read_slots(args[1], args[2], &slots);
    if (are_near <= 0)
        return are_near < 0 ? NULL : Py_NewRef(Py_None);
    PyObject *blocks = PySet_New(NULL);
    for (Py_ssize_t at = 0; blocks != NULL && at < keys.size; at += KEY_SIZE)
        if (add_block(blocks, place_of(read_32(keys.at + at), slots) >> block_bits) < 0)
            Py_CLEAR(blocks);
    return blocks;
}

/* -- entries ----------------------------------------------------------------------------------- */

static int table_begin(Table *table, Py_ssize_t many)
{
    uint32_t size = 16;
    while (size < 2 * (uint32_t)many)
        size *= 2;
    table->mask = size - 1;
    table->count = 0;
    table->at = PyMem_Calloc(size, sizeof *table->at);
    table->newest = PyMem_Malloc(((size_t)many + 1) * sizeof *table->newest);
    if (table->at != NULL && table->newest != NULL)
        return 0;
    PyErr_NoMemory();
    return -1;
}

/* That of a place, with the number 0 when it is seen for the first time. */
static Newest *table_newest(Table *table, uint32_t place)
{
    uint32_t at = (place / HEAD_SIZE * 2654435761u >> 7) & table->mask;
    while (table->at[at] != 0) {
        Newest *found = &table->newest[table->at[at] - 1];
        if (found->place == place)
            return found;
        at = (at + 1) & table->mask;
    }
    Newest *made = &table->newest[table->count++];
    table->at[at] = (uint32_t)table->count;
    *made = (Newest){place, 0};
    return made;
}

static int64_t seconds_since(int64_t begin_ms, int64_t stored_ms)
{
    if (stored_ms < begin_ms)
        return 0;
    uint64_t seconds = ((uint64_t)stored_ms - (uint64_t)begin_ms) / 1000;
    return seconds < SECONDS_MAX ? (int64_t)seconds : SECONDS_MAX;
}

/* One entry, and its slot's newest; whether it is the first of its slot, or -1. */
static int add_entry(uint8_t *at, const uint8_t *key, Slots slots, const Py_buffer *memory,
                     Table *table, uint32_t number, int64_t begin_ms)
{
    uint32_t code = read_32(key), place = place_of(code, slots);
    if (memory->len < HEAD_SIZE || place > memory->len - HEAD_SIZE) {
        PyErr_SetString(PyExc_ValueError, "a slot beyond the file");
        return -1;
    }
    Newest *newest = table_newest(table, place);
    int32_t previous = (int32_t)newest->number;
    if (previous == 0)
        previous = (int32_t)read_32((const uint8_t *)memory->buf + place);
    int is_first = previous <= 0 || (uint32_t)previous >= number;
    newest->number = number;
    at = write_32(at, code);
    at = write_64(at, read_64(key + KEY_OFFSET_AT));
    at = write_32(at, (uint32_t)seconds_since(begin_ms, read_64(key + KEY_STORED_AT)));
    write_32(at, is_first ? 0 : (uint32_t)previous);
    return is_first;
}

static PyObject *add_entries(Span keys, Slots slots, const Py_buffer *memory, Table *table,
                             int64_t first, int64_t begin_ms)
{
    Py_ssize_t many = keys.size / KEY_SIZE;
    int fresh_count = 0, is_first = 0;
    PyObject *entries = PyBytes_FromStringAndSize(NULL, many * ENTRY_SIZE);
    for (Py_ssize_t nth = 0; entries != NULL && is_first >= 0 && nth < many; nth++) {
        is_first = add_entry((uint8_t *)PyBytes_AsString(entries) + nth * ENTRY_SIZE,
                             keys.at + nth * KEY_SIZE, slots, memory, table,
                             (uint32_t)(first + nth), begin_ms);
        fresh_count += is_first;
    }
    if (entries == NULL || is_first < 0) {
        Py_XDECREF(entries);
        return NULL;
    }
    return Py_BuildValue("(Ny#i)", entries, (const char *)table->newest,
                         table->count * (Py_ssize_t)sizeof(Newest), fresh_count);
}

PyObject *chain(PyObject *const *args)
{
    Span keys;
    Slots slots;
    Py_buffer memory;
    Table table = {NULL, NULL, 0, 0};
    PyObject *found = NULL;
    int64_t first = PyLong_AsLongLong(args[4]), begin_ms = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred() || read_keys(args[1], &keys) < 0)
        return NULL;
    int are_near = read_slots(args[2], args[3], &slots);
    if (are_near < 0)
        return NULL;
    Py_ssize_t many = keys.size / KEY_SIZE;
    if (are_near == 0 || first < 1 || first > INT32_MAX - many) {
        PyErr_SetString(PyExc_ValueError, "slots or entries are out of range");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &memory, PyBUF_SIMPLE) < 0)
        return NULL;
    if (table_begin(&table, many) == 0)
        found = add_entries(keys, slots, &memory, &table, first, begin_ms);
    PyMem_Free(table.at);
    PyMem_Free(table.newest);
    PyBuffer_Release(&memory);
    return found;
}

PyObject *lead(PyObject *const *args)
{
    Span newest;
    Py_buffer memory;
    if (span_of(args[1], &newest) < 0 || PyObject_GetBuffer(args[0], &memory, PyBUF_WRITABLE) < 0)
        return NULL;
    int is_within = newest.size % (Py_ssize_t)sizeof(Newest) == 0;
    for (int is_writing = 0; is_within && is_writing < 2; is_writing++)
        for (Py_ssize_t at = 0; is_within && at < newest.size; at += (Py_ssize_t)sizeof(Newest)) {
            Newest one;
            memcpy(&one, newest.at + at, sizeof one);
            is_within = memory.len >= HEAD_SIZE && one.place <= memory.len - HEAD_SIZE;
            if (is_within && is_writing)
                write_32((uint8_t *)memory.buf + one.place, one.number);
        }
    PyBuffer_Release(&memory);
    if (is_within)
        return Py_NewRef(Py_None);
    PyErr_SetString(PyExc_ValueError, "a slot beyond the file");
    return NULL;
}
