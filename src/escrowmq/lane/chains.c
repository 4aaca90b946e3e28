/* What an index file gets for keys (store/index_chains.py): the slots that they belong to, and the
   entries that stand in front of those that are there. Keys are tuples: hash of what stands in
   front of a key, the key, log offset, store time. The file lies in memory; both slots of keys and
   newest entries of slots are pairs of numbers of 32 bits, as this machine writes them. */

#include "bytes.h"
#include "sends.h"

#define ENTRY_SIZE 20
#define HEAD_SIZE 4
#define SECONDS_MAX 0x7FFFFFFF
#define MANY_MAX (INT32_MAX / 64)

typedef struct {
    uint32_t code, place; /* what the index keeps of a key, and where its slot is */
} Slot;

typedef struct {
    uint32_t place, number; /* of a slot, and of the newest entry that it leads to */
} Newest;

/* The newest entries of slots, found by their places: what `at` has is one more than which. */
typedef struct {
    Newest *newest;
    uint32_t *at, mask;
    Py_ssize_t count;
} Table;

/* 1, and the key; 0 when it is not ASCII, whose characters are counted elsewhere. */
static int ascii_at(PyObject *key, Span *found)
{
    PyObject *text = PyTuple_GetItem(key, 1);
    if (text == NULL)
        return -1;
    if (!PyUnicode_Check(text))
        return span_of(text, found) < 0 ? -1 : is_ascii(*found);
    found->at = (const uint8_t *)PyUnicode_AsUTF8AndSize(text, &found->size);
    if (found->at != NULL)
        return is_ascii(*found);
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return -1;
    PyErr_Clear(); /* half of a pair */
    return 0;
}

/* -- slots ------------------------------------------------------------------------------------- */

static int find_slot(PyObject *key, uint32_t slots_count, uint32_t slots_at, Slot *found)
{
    Span text;
    int64_t prefix;
    if (number_at(key, 0, -INT64_C(0x80000000), UINT32_MAX, &prefix) < 0)
        return -1;
    int is_plain = ascii_at(key, &text);
    if (is_plain <= 0)
        return is_plain;
    uint32_t code = java_hash((uint32_t)prefix, text);
    if (code >= 0x80000000u) /* abs() of RocketMQ, for which the least integer has none */
        code = code == 0x80000000u ? 0 : 0u - code;
    *found = (Slot){code, slots_at + code % slots_count * HEAD_SIZE};
    return 1;
}

static int add_block(PyObject *blocks, uint32_t block)
{
    PyObject *made = PyLong_FromUnsignedLong(block);
    int done = made == NULL ? -1 : PySet_Add(blocks, made);
    Py_XDECREF(made);
    return done;
}

const char find_slots_doc[] =
    "find_slots(keys, slots_count, slots_at, block_bits)\n\nSee store/index_chains.py.";

PyObject *find_slots(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 4 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "keys, slots_count, slots_at, block_bits");
        return NULL;
    }
    int64_t slots_count = PyLong_AsLongLong(args[1]), slots_at = PyLong_AsLongLong(args[2]);
    int64_t block_bits = PyLong_AsLongLong(args[3]);
    Py_ssize_t many = PyList_Size(args[0]);
    if (PyErr_Occurred())
        return NULL;
    if (slots_count < 1 || slots_count > INT32_MAX || slots_at < 0 || slots_at > INT32_MAX ||
        block_bits < 0 || block_bits > 31 || many > MANY_MAX) {
        PyErr_SetString(PyExc_ValueError, "slots are out of range");
        return NULL;
    }
    if (slots_at + slots_count * HEAD_SIZE > UINT32_MAX)
        return Py_NewRef(Py_None);
    PyObject *slots = PyBytes_FromStringAndSize(NULL, many * (Py_ssize_t)sizeof(Slot));
    PyObject *blocks = PySet_New(NULL), *found = NULL;
    int is_found = slots == NULL || blocks == NULL ? -1 : 1;
    for (Py_ssize_t nth = 0; is_found > 0 && nth < many; nth++) {
        Slot slot;
        is_found = find_slot(PyList_GetItem(args[0], nth), (uint32_t)slots_count,
                             (uint32_t)slots_at, &slot);
        if (is_found <= 0)
            break;
        memcpy(PyBytes_AsString(slots) + nth * (Py_ssize_t)sizeof slot, &slot, sizeof slot);
        if (add_block(blocks, slot.place >> block_bits) < 0)
            is_found = -1;
    }
    if (is_found == 0)
        found = Py_NewRef(Py_None);
    else if (is_found > 0)
        found = PyTuple_Pack(2, slots, blocks);
    Py_XDECREF(slots);
    Py_XDECREF(blocks);
    return found;
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
static int add_entry(uint8_t *at, PyObject *key, Slot slot, const Py_buffer *memory, Table *table,
                     uint32_t number, int64_t begin_ms)
{
    int64_t log_offset, stored_ms;
    if (number_at(key, 2, INT64_MIN, INT64_MAX, &log_offset) < 0 ||
        number_at(key, 3, INT64_MIN, INT64_MAX, &stored_ms) < 0)
        return -1;
    if (memory->len < HEAD_SIZE || slot.place > memory->len - HEAD_SIZE) {
        PyErr_SetString(PyExc_ValueError, "a slot beyond the file");
        return -1;
    }
    Newest *newest = table_newest(table, slot.place);
    int32_t previous = (int32_t)newest->number;
    if (previous == 0)
        previous = (int32_t)read_32((const uint8_t *)memory->buf + slot.place);
    int is_first = previous <= 0 || (uint32_t)previous >= number;
    newest->number = number;
    at = write_32(at, slot.code);
    at = write_64(at, log_offset);
    at = write_32(at, (uint32_t)seconds_since(begin_ms, stored_ms));
    write_32(at, is_first ? 0 : (uint32_t)previous);
    return is_first;
}

static PyObject *add_entries(PyObject *keys, Span slots, const Py_buffer *memory, Table *table,
                             int64_t first, int64_t begin_ms)
{
    Py_ssize_t many = PyList_Size(keys);
    int fresh_count = 0, is_first = 0;
    PyObject *entries = PyBytes_FromStringAndSize(NULL, many * ENTRY_SIZE);
    for (Py_ssize_t nth = 0; entries != NULL && is_first >= 0 && nth < many; nth++) {
        Slot slot;
        memcpy(&slot, slots.at + nth * (Py_ssize_t)sizeof slot, sizeof slot);
        is_first = add_entry((uint8_t *)PyBytes_AsString(entries) + nth * ENTRY_SIZE,
                             PyList_GetItem(keys, nth), slot, memory, table,
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

const char chain_doc[] = "chain(memory, keys, slots, first, begin_ms)\n\nSee store/index_chains.py.";

PyObject *chain(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Span slots;
    Py_buffer memory;
    Table table = {NULL, NULL, 0, 0};
    PyObject *found = NULL;
    if (count != 5 || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "memory, keys, slots, first, begin_ms");
        return NULL;
    }
    int64_t first = PyLong_AsLongLong(args[3]), begin_ms = PyLong_AsLongLong(args[4]);
    if (PyErr_Occurred() || span_of(args[2], &slots) < 0)
        return NULL;
    Py_ssize_t many = PyList_Size(args[1]);
    if (many > MANY_MAX || slots.size != many * (Py_ssize_t)sizeof(Slot) || first < 1 ||
        first > INT32_MAX - many) {
        PyErr_SetString(PyExc_ValueError, "keys and slots do not fit together");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &memory, PyBUF_SIMPLE) < 0)
        return NULL;
    if (table_begin(&table, many) == 0)
        found = add_entries(args[1], slots, &memory, &table, first, begin_ms);
    PyMem_Free(table.at);
    PyMem_Free(table.newest);
    PyBuffer_Release(&memory);
    return found;
}

const char lead_doc[] = "lead(memory, newest)\n\nSee store/index_chains.py.";

PyObject *lead(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Span newest;
    Py_buffer memory;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "memory, newest");
        return NULL;
    }
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
