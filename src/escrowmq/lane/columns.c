/* Records of the log on their way into columns (pipeline/arrow): where each begins, where the
   properties of each lie, and cells copied one behind the other, as Arrow has them. Numbers go in
   and out as arrays of the machine's own: places of 64 bits, Arrow's bounds of 32. */

#include "record.h"

#define NAME_END 1
#define VALUE_END 2
#define ENTRIES_MAX 64 /* of one record; each is compared with those before it */

/* An entry of properties: where its name begins, where it ends, and where its value ends. */
typedef struct {
    int32_t start, middle, end;
} Entry;

static inline int64_t place_at(const Py_buffer *places, Py_ssize_t nth)
{
    int64_t place;
    memcpy(&place, (const uint8_t *)places->buf + nth * (Py_ssize_t)sizeof place, sizeof place);
    return place;
}

static inline int32_t bound_at(const Py_buffer *bounds, Py_ssize_t nth)
{
    int32_t bound;
    memcpy(&bound, (const uint8_t *)bounds->buf + nth * (Py_ssize_t)sizeof bound, sizeof bound);
    return bound;
}

static inline Entry entry_at(const Py_buffer *entries, Py_ssize_t nth)
{
    Entry entry;
    memcpy(&entry, (const uint8_t *)entries->buf + nth * (Py_ssize_t)sizeof entry, sizeof entry);
    return entry;
}

static inline void put_bound(uint8_t *bounds, Py_ssize_t nth, int32_t bound)
{
    memcpy(bounds + nth * (Py_ssize_t)sizeof bound, &bound, sizeof bound);
}

static void give_back(Py_buffer *views, int count)
{
    for (int nth = 0; nth < count; nth++)
        PyBuffer_Release(&views[nth]);
}

/* The buffers of so many arguments; give_back when they are no longer read. */
static int take_buffers(PyObject *const *args, Py_buffer *views, int count)
{
    for (int nth = 0; nth < count; nth++)
        if (PyObject_GetBuffer(args[nth], &views[nth], PyBUF_SIMPLE) < 0) {
            give_back(views, nth);
            return -1;
        }
    return 0;
}

static int misfit(void)
{
    PyErr_SetString(PyExc_ValueError, "places do not fit the bytes that they are of");
    return -1;
}

static PyObject *bytes_pair(PyObject *one, PyObject *other)
{
    PyObject *found = one == NULL || other == NULL ? NULL : PyTuple_Pack(2, one, other);
    Py_XDECREF(one);
    Py_XDECREF(other);
    return found;
}

static PyObject *pile_bytes(Pile *pile)
{
    PyObject *found = bytes_of_pile(pile);
    PyMem_Free(pile->bytes);
    return found;
}

PyObject *find_records(PyObject *const *args)
{
    Py_buffer data;
    Pile places = {NULL, 0, 0};
    if (take_buffers(args, &data, 1) < 0)
        return NULL;
    const uint8_t *bytes = data.buf;
    int is_whole = 1;
    for (int64_t at = 0; at < data.len && is_whole > 0;) {
        int is_head = data.len - at >= RECORD_SIZE_MIN;
        uint32_t size = is_head ? read_32(bytes + at) : 0;
        uint32_t magic = is_head ? read_32(bytes + at + MAGIC_AT) : 0;
        uint8_t *room;
        if (size < RECORD_SIZE_MIN || size > data.len - at ||
            (magic != MAGIC_V1 && magic != MAGIC_V2)) {
            is_whole = 0;
        } else if ((room = pile_room(&places, sizeof at)) == NULL) {
            is_whole = -1;
        } else {
            memcpy(room, &at, sizeof at);
            places.size += sizeof at;
            at += size;
        }
    }
    PyBuffer_Release(&data);
    if (is_whole > 0)
        return pile_bytes(&places);
    PyMem_Free(places.bytes);
    return is_whole < 0 ? NULL : Py_NewRef(Py_None);
}

/* How many bytes the cells have together; -1 with an exception when they are not all there. */
static int64_t cells_size(const Py_buffer *views)
{
    int64_t total = 0;
    Py_ssize_t many = views[1].len / (Py_ssize_t)sizeof(int64_t);
    if (views[1].len != views[2].len || views[1].len % (Py_ssize_t)sizeof(int64_t) != 0)
        return misfit();
    for (Py_ssize_t nth = 0; nth < many; nth++) {
        int64_t start = place_at(&views[1], nth), end = place_at(&views[2], nth);
        if (start < 0 || end < start || end > views[0].len || end - start > INT32_MAX - total)
            return misfit();
        total += end - start;
    }
    return total;
}

PyObject *copy_cells(PyObject *const *args)
{
    Py_buffer views[3];
    PyObject *bounds = NULL, *cells = NULL;
    if (take_buffers(args, views, 3) < 0)
        return NULL;
    Py_ssize_t many = views[1].len / (Py_ssize_t)sizeof(int64_t);
    int64_t total = cells_size(views);
    if (total >= 0) {
        bounds = PyBytes_FromStringAndSize(NULL, (many + 1) * (Py_ssize_t)sizeof(int32_t));
        cells = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    }
    if (bounds != NULL && cells != NULL) {
        uint8_t *ends = (uint8_t *)PyBytes_AsString(bounds);
        uint8_t *begin = (uint8_t *)PyBytes_AsString(cells), *at = begin;
        put_bound(ends, 0, 0);
        for (Py_ssize_t nth = 0; nth < many; nth++) {
            int64_t start = place_at(&views[1], nth);
            Span cell = {(const uint8_t *)views[0].buf + start,
                         (Py_ssize_t)(place_at(&views[2], nth) - start)};
            at = write_span(at, cell);
            put_bound(ends, nth + 1, (int32_t)(at - begin));
        }
    }
    give_back(views, 3);
    return bytes_pair(bounds, cells);
}

static int copy_all(const Py_buffer *data, const Py_buffer *places, Py_ssize_t width, uint8_t *to)
{
    Py_ssize_t many = places->len / (Py_ssize_t)sizeof(int64_t);
    for (Py_ssize_t nth = 0; nth < many; nth++, to += width) {
        int64_t at = place_at(places, nth);
        if (at < 0 || at > data->len - width)
            return misfit();
        const uint8_t *from = (const uint8_t *)data->buf + at;
        if (width == 8)
            memcpy(to, from, 8);
        else if (width == 4)
            memcpy(to, from, 4);
        else
            memcpy(to, from, (size_t)width);
    }
    return 0;
}

PyObject *copy_numbers(PyObject *const *args)
{
    Py_buffer views[2];
    PyObject *found = NULL;
    if (take_buffers(args, views, 2) < 0)
        return NULL;
    int64_t width = PyLong_AsLongLong(args[2]);
    Py_ssize_t many = views[1].len / (Py_ssize_t)sizeof(int64_t);
    if (width < 1 || width > 8 || views[1].len % (Py_ssize_t)sizeof(int64_t) != 0) {
        if (!PyErr_Occurred())
            misfit();
    } else {
        found = PyBytes_FromStringAndSize(NULL, many * (Py_ssize_t)width);
    }
    if (found != NULL &&
        copy_all(&views[0], &views[1], (Py_ssize_t)width, (uint8_t *)PyBytes_AsString(found)) < 0)
        Py_CLEAR(found);
    give_back(views, 2);
    return found;
}

/* Adds an entry to those of its record; of two with one name the former goes. The count, or -1 when
   there are too many. */
static int add_entry(const uint8_t *data, Entry *found, int count, Entry entry)
{
    int32_t size = entry.middle - entry.start;
    for (int nth = 0; nth < count; nth++)
        if (found[nth].middle - found[nth].start == size &&
            memcmp(data + found[nth].start, data + entry.start, (size_t)size) == 0) {
            count--;
            memmove(&found[nth], &found[nth + 1], (size_t)(count - nth) * sizeof entry);
            break;
        }
    if (count == ENTRIES_MAX)
        return -1;
    found[count] = entry;
    return count + 1;
}

/* The entries of one record: how many, or -1 when there are too many. Without name, mark or value
   one does not count. */
static int entries_of(const uint8_t *data, int32_t at, int32_t end, Entry *found)
{
    int count = 0;
    while (at < end && count >= 0) {
        const uint8_t *mark = memchr(data + at, VALUE_END, (size_t)(end - at));
        int32_t entry_end = mark == NULL ? end : (int32_t)(mark - data);
        mark = memchr(data + at, NAME_END, (size_t)(entry_end - at));
        if (mark != NULL && mark > data + at && mark + 1 < data + entry_end) {
            Entry entry = {at, (int32_t)(mark - data), entry_end};
            count = add_entry(data, found, count, entry);
        }
        at = entry_end + 1;
    }
    return count;
}

PyObject *find_entries(PyObject *const *args)
{
    Py_buffer views[3];
    Pile entries = {NULL, 0, 0};
    PyObject *bounds = NULL;
    if (take_buffers(args, views, 3) < 0)
        return NULL;
    Py_ssize_t many = views[1].len / (Py_ssize_t)sizeof(int64_t);
    /* One byte more is stepped over behind the last entry. */
    int fits = cells_size(views) < 0 ? -1 : views[0].len < INT32_MAX;
    if (fits > 0) {
        bounds = PyBytes_FromStringAndSize(NULL, (many + 1) * (Py_ssize_t)sizeof(int32_t));
        fits = bounds == NULL ? -1 : 1;
    }
    if (fits > 0)
        put_bound((uint8_t *)PyBytes_AsString(bounds), 0, 0);
    for (Py_ssize_t nth = 0; fits > 0 && nth < many; nth++) {
        Entry found[ENTRIES_MAX];
        int here = entries_of(views[0].buf, (int32_t)place_at(&views[1], nth),
                              (int32_t)place_at(&views[2], nth), found);
        Py_ssize_t size = here * (Py_ssize_t)sizeof(Entry);
        /* A byte more than needed, as a pile without any has no place. */
        uint8_t *room = here < 0 ? NULL : pile_room(&entries, size + 1);
        if (room == NULL) {
            fits = here < 0 ? 0 : -1;
            break;
        }
        memcpy(room, found, (size_t)size);
        entries.size += size;
        put_bound((uint8_t *)PyBytes_AsString(bounds), nth + 1,
                  (int32_t)(entries.size / (Py_ssize_t)sizeof(Entry)));
    }
    give_back(views, 3);
    if (fits > 0)
        return bytes_pair(bounds, pile_bytes(&entries));
    PyMem_Free(entries.bytes);
    Py_XDECREF(bounds);
    return fits < 0 ? NULL : Py_NewRef(Py_None);
}

/* What is looked for, and where. */
typedef struct {
    const uint8_t *data;
    Py_ssize_t size;
    const Py_buffer *bounds, *entries;
    Span name;
} Wanted;

/* Whether a row has it: 1 and the value, 0, or -1 with an exception. */
static int find_name(const Wanted *wanted, Py_ssize_t row, Span *found)
{
    int32_t nth = bound_at(wanted->bounds, row), last = bound_at(wanted->bounds, row + 1);
    if (nth < 0 || last > wanted->entries->len / (Py_ssize_t)sizeof(Entry))
        return misfit();
    for (; nth < last; nth++) {
        Entry entry = entry_at(wanted->entries, nth);
        if ((int64_t)entry.middle - entry.start != wanted->name.size)
            continue;
        if (entry.start < 0 || entry.end <= entry.middle || entry.end > wanted->size)
            return misfit();
        Span name = {wanted->data + entry.start, wanted->name.size};
        if (span_equals(name, wanted->name)) {
            found->at = wanted->data + entry.middle + 1;
            found->size = entry.end - entry.middle - 1;
            return 1;
        }
    }
    return 0;
}

/* Bounds, bytes, bits and how many are missing. */
static PyObject *named_of(const Wanted *wanted, Py_ssize_t many)
{
    Pile cells = {NULL, 0, 0};
    int64_t missing = 0;
    PyObject *bounds = PyBytes_FromStringAndSize(NULL, (many + 1) * (Py_ssize_t)sizeof(int32_t));
    PyObject *there = PyBytes_FromStringAndSize(NULL, (many + 7) / 8);
    PyObject *found = NULL;
    int fits = bounds != NULL && there != NULL;
    if (fits) {
        put_bound((uint8_t *)PyBytes_AsString(bounds), 0, 0);
        memset(PyBytes_AsString(there), 0, (size_t)(many + 7) / 8);
    }
    for (Py_ssize_t row = 0; fits && row < many; row++) {
        Span cell = {NULL, 0};
        int is_there = find_name(wanted, row, &cell);
        uint8_t *room = NULL;
        if (is_there > 0)
            PyBytes_AsString(there)[row / 8] |= (char)(1 << row % 8);
        else
            missing++;
        if (is_there >= 0 && cell.size > INT32_MAX - cells.size)
            misfit();
        else if (is_there >= 0)
            room = pile_room(&cells, cell.size + 1);
        fits = room != NULL;
        if (fits) {
            write_span(room, cell);
            cells.size += cell.size;
            put_bound((uint8_t *)PyBytes_AsString(bounds), row + 1, (int32_t)cells.size);
        }
    }
    PyObject *bytes = fits ? pile_bytes(&cells) : NULL;
    if (bytes != NULL)
        found = Py_BuildValue("(OOOL)", bounds, bytes, there, (long long)missing);
    else if (!fits)
        PyMem_Free(cells.bytes);
    Py_XDECREF(bounds);
    Py_XDECREF(there);
    Py_XDECREF(bytes);
    return found;
}

PyObject *copy_named(PyObject *const *args)
{
    Py_buffer views[4];
    PyObject *found = NULL;
    if (take_buffers(args, views, 4) < 0)
        return NULL;
    Py_ssize_t many = views[1].len / (Py_ssize_t)sizeof(int32_t) - 1;
    if (many < 0 || views[1].len % (Py_ssize_t)sizeof(int32_t) != 0 ||
        views[2].len % (Py_ssize_t)sizeof(Entry) != 0) {
        misfit();
    } else {
        Wanted wanted = {views[0].buf, views[0].len, &views[1], &views[2],
                         {views[3].buf, views[3].len}};
        found = named_of(&wanted, many);
    }
    give_back(views, 4);
    return found;
}
