/* The module: lane/native.py says when it is used, and what its functions do. */

#include "work.h"

/* One more with each change of what goes in or comes out, here and in lane/native.py: a build of
   other sources may lie beside these. */
#define CONTRACT 17

/* Each function is called with as many arguments as it takes. */
#define CHECKED(name, wanted, arguments, where)                                                    \
    static PyObject *name##_checked(PyObject *Py_UNUSED(module), PyObject *const *args,            \
                                    Py_ssize_t count)                                              \
    {                                                                                              \
        if (count == (wanted))                                                                     \
            return name(args);                                                                     \
        PyErr_SetString(PyExc_TypeError, #name "(" arguments ")");                                 \
        return NULL;                                                                               \
    }
FUNCTIONS(CHECKED)

#define ROW(name, wanted, arguments, where)                                                        \
    {#name, (PyCFunction)(void (*)(void))name##_checked, METH_FASTCALL,                            \
     #name "(" arguments ")\n\nSee " where "."},

static PyMethodDef methods[] = {FUNCTIONS(ROW){NULL, NULL, 0, NULL}};

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
