/* The module: lane/native.py says when it is used, and what its functions do. */

#include "work.h"

/* One more with each change of what goes in or comes out, here and in lane/native.py: a build of
   other sources may lie beside these. */
#define CONTRACT 16

static PyMethodDef methods[] = {
    {"lay_out_sends", (PyCFunction)(void (*)(void))lay_out_sends, METH_FASTCALL,
     lay_out_sends_doc},
    {"find_ends", (PyCFunction)(void (*)(void))find_ends, METH_FASTCALL, find_ends_doc},
    {"lay_out_ends", (PyCFunction)(void (*)(void))lay_out_ends, METH_FASTCALL, lay_out_ends_doc},
    {"index_key", (PyCFunction)(void (*)(void))index_key, METH_FASTCALL, index_key_doc},
    {"find_blocks", (PyCFunction)(void (*)(void))find_blocks, METH_FASTCALL, find_blocks_doc},
    {"chain", (PyCFunction)(void (*)(void))chain, METH_FASTCALL, chain_doc},
    {"lead", (PyCFunction)(void (*)(void))lead, METH_FASTCALL, lead_doc},
    {"find_signed", (PyCFunction)(void (*)(void))find_signed, METH_FASTCALL, find_signed_doc},
    {"alike_halves", (PyCFunction)(void (*)(void))alike_halves, METH_FASTCALL,
     alike_halves_doc},
    {"find_starts", (PyCFunction)(void (*)(void))find_starts, METH_FASTCALL, find_starts_doc},
    {"find_runs", (PyCFunction)(void (*)(void))find_runs, METH_FASTCALL, find_runs_doc},
    {"copy_runs", (PyCFunction)(void (*)(void))copy_runs, METH_FASTCALL, copy_runs_doc},
    {"reply_with_runs", (PyCFunction)(void (*)(void))reply_with_runs, METH_FASTCALL,
     reply_with_runs_doc},
    {"are_whole", (PyCFunction)(void (*)(void))are_whole, METH_FASTCALL, are_whole_doc},
    {"find_repeated", (PyCFunction)(void (*)(void))find_repeated, METH_FASTCALL,
     find_repeated_doc},
    {"find_records", (PyCFunction)(void (*)(void))find_records, METH_FASTCALL, find_records_doc},
    {"copy_cells", (PyCFunction)(void (*)(void))copy_cells, METH_FASTCALL, copy_cells_doc},
    {"copy_numbers", (PyCFunction)(void (*)(void))copy_numbers, METH_FASTCALL, copy_numbers_doc},
    {"find_entries", (PyCFunction)(void (*)(void))find_entries, METH_FASTCALL, find_entries_doc},
    {"copy_named", (PyCFunction)(void (*)(void))copy_named, METH_FASTCALL, copy_named_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_compiled", "What is compiled; see escrowmq.lane.native.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__compiled(void)
{
    crc_prepare();
    if (given_prepare() < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddIntConstant(module, "CONTRACT", CONTRACT) < 0)
        Py_CLEAR(module);
    return module;
}
