/* The C interface: for other languages. No C++ type or exception crosses it; every function may be
 * called from any thread.
 *
 * Threads: all functions may be called at the same time on one handle, but for pn_*_free, when no
 * other call may be using the handle; what a view showed may be read by all as long as the tensor
 * is there. The first view of a tensor makes what all of them show.
 *
 * Every function that returns a pn_code fails with one that is not PN_OK, and then pn_last_error()
 * of the same thread says what was wrong. Others never fail: what they return for nothing is said.
 * Where a pointer may not be NULL, a count does not fit, or a number means nothing, it is
 * PN_INVALID_ARGUMENT; where there is no memory PN_RESOURCE_EXHAUSTED; where no plug-in can be used
 * the code of C++'s PluginError. Undefined are only pointers to what is not there (any more):
 * handles that were freed, memory that is less than the counts beside it say. What a function makes
 * through an `out` pointer belongs to the caller, who frees it with the function of its kind;
 * freeing NULL is allowed. Strings are UTF-8 and, where a handle gives them, live as long as the
 * handle.
 *
 *   pn_tensor* x = NULL;
 *   float numbers[] = {1, 2};
 *   int64_t dims[] = {2};
 *   pn_array array = {PN_F32, 1, dims, numbers, sizeof numbers};
 *   if (pn_tensor_copy(&array, &x) != PN_OK) fprintf(stderr, "%s\n", pn_last_error());
 *   pn_tensor_free(x);
 */
#ifndef POSTERN_C_H
#define POSTERN_C_H

#include <postern/detail/api.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PN_C_VERSION 10
/* The version of this interface that the library has; compatible when it is PN_C_VERSION or more.
 */
POSTERN_API int pn_version(void);

typedef enum pn_code {
  PN_OK = 0,
  PN_CANCELLED = 1,
  PN_UNKNOWN = 2,
  PN_INVALID_ARGUMENT = 3,
  PN_DEADLINE_EXCEEDED = 4,
  PN_NOT_FOUND = 5,
  PN_ALREADY_EXISTS = 6,
  PN_RESOURCE_EXHAUSTED = 8,
  PN_FAILED_PRECONDITION = 9,
  PN_UNIMPLEMENTED = 12,
  PN_INTERNAL = 13,
  PN_UNAVAILABLE = 14,
  PN_DATA_LOSS = 15,
  PN_THREW = 100,        /* a host function failed */
  PN_BAD_RESULT = 101,   /* a host function returned something that does not fit */
  PN_TIMEOUT = 102,      /* a time limit passed */
  PN_REENTRY = 103,      /* nested too deep, or a wait for oneself */
  PN_CLOSED = 104,       /* the other side is gone */
  PN_UNREGISTERED = 105, /* no host function of that name */
  PN_EMPTY = 200         /* nothing came within the time given; no error text */
} pn_code;

/* What this thread's last failed call said; "" when none failed. Valid until the thread's next
 * call. */
POSTERN_API const char* pn_last_error(void);
/* What a host function of this process gave with that failure by pn_fail_with or
 * pn_bridge_fail_with; NULL when none did. Valid as long as the text. */
POSTERN_API void* pn_last_cause(void);
/* Forgets text and cause. */
POSTERN_API void pn_clear_error(void);

typedef enum pn_dtype {
  PN_PRED,
  PN_S2,
  PN_S4,
  PN_S8,
  PN_S16,
  PN_S32,
  PN_S64,
  PN_U2,
  PN_U4,
  PN_U8,
  PN_U16,
  PN_U32,
  PN_U64,
  PN_F16,
  PN_BF16,
  PN_F32,
  PN_F64,
  PN_C64,
  PN_C128,
  PN_F8E5M2,
  PN_F8E4M3FN,
  PN_F8E4M3B11FNUZ,
  PN_F8E5M2FNUZ,
  PN_F8E4M3FNUZ,
  PN_F8E4M3,
  PN_F8E3M4,
  PN_F8E8M0FNU,
  PN_F4E2M1FN
} pn_dtype;

/* "f32"; NULL where the number is none. */
POSTERN_API const char* pn_dtype_name(int dtype);

/* Row-major memory that belongs to somebody else. Elements of less than a byte take one each. */
typedef struct pn_array {
  int32_t dtype; /* pn_dtype */
  int32_t rank;
  const int64_t* dims;
  void* data;
  size_t bytes;
} pn_array;

/* Before anything runs, else PN_FAILED_PRECONDITION: how many CPU devices (0: default), a plug-in's
 * path and a cache folder (NULL or "": default). */
POSTERN_API int pn_configure(int cpu_devices, const char* plugin, const char* cache_dir);
/* More to say. Whoever fills it writes zeros first: they mean the defaults. Fails alike. */
typedef struct pn_options {
  size_t size;         /* sizeof(pn_options), for versions to come */
  int32_t cpu_devices; /* as in pn_configure, and the next two */
  const char* plugin;
  const char* cache_dir;
  uint64_t tap_queue_bytes; /* for each device, what asynchronous taps may hold before the program
                               waits, also those of guests; default: 256 MiB */
} pn_options;
POSTERN_API int pn_configure_with(const pn_options* options);

/* --- tensors --- */

typedef struct pn_tensor pn_tensor;
/* A copy of the array. `bytes` must be what its type needs. */
POSTERN_API int pn_tensor_copy(const pn_array* array, pn_tensor** out);
/* The array's memory as it is, until `release(user)` is called, once, from any thread. Memory
 * aligned to 64 bytes is used in place. */
POSTERN_API int pn_tensor_borrow(const pn_array* array, void (*release)(void* user), void* user,
                                 pn_tensor** out);
/* Waits for the data, then tells type and row-major bytes, which live as long as the tensor; no
 * copy on CPU. Fails as the run did that makes it. */
POSTERN_API int pn_tensor_view(const pn_tensor* tensor, pn_array* out);
/* Runs that were given it keep the data. */
POSTERN_API void pn_tensor_free(pn_tensor* tensor);

/* The array of these parts, one for each device of a mesh. `sharding` is JSON: the mesh's axes and
 * sizes, its devices, row-major, and which of its axes cut each axis of the array; those that are
 * not told of are whole:
 *
 *   {"mesh": {"axes": [["x", 2], ["y", 2]], "devices": [0, 1, 2, 3]}, "spec": [["x"], []]}
 *
 * Devices along axes of the mesh that cut nothing have copies of a part. With `compare` other than
 * 0 such copies are compared; else nobody looks, and each device computes with its own. Parts go to
 * their devices, without a copy on CPU where they are aligned, and may be freed afterwards.
 * Programs of one device that are given the array run on the mesh's devices: XLA cuts them. All
 * meshes of a run have the same devices. PN_INVALID_ARGUMENT for what is no sharding, for devices
 * that there are not, and for parts of different types and compared copies that differ. */
POSTERN_API int pn_tensor_of_shards(const char* sharding, const pn_tensor* const* shards,
                                    size_t count, int compare, pn_tensor** out);
/* A part of an array, by its device's place in the mesh, which shares the array's memory, and the
 * device that has it; PN_NOT_FOUND beyond the last. A tensor on one device is its own only part.
 * `device` may be NULL. */
POSTERN_API int pn_tensor_shard(const pn_tensor* tensor, size_t index, int32_t* device,
                                pn_tensor** out);

/* DLPack's exchange of arrays (https://dmlc.github.io/dlpack; the structure without version). */
struct DLManagedTensor;
/* Takes the array over, and calls its deleter once: row-major memory is used as by
 * pn_tensor_borrow, other is copied. When it fails the array is still the caller's. */
POSTERN_API int pn_tensor_from_dlpack(struct DLManagedTensor* managed, pn_tensor** out);
/* Waits for the data, and shows it without a copy on CPU: nobody may write to it. The tensor may be
 * freed meanwhile. */
POSTERN_API int pn_tensor_to_dlpack(const pn_tensor* tensor, struct DLManagedTensor** out);

/* --- saved programs --- */

typedef struct pn_program pn_program;
/* What postern::save wrote, or the same as text. PN_NOT_FOUND or PN_UNAVAILABLE when there is no
 * such file, PN_DATA_LOSS when it was changed or cut, PN_INVALID_ARGUMENT when it is no program,
 * PN_UNIMPLEMENTED when it needs what cannot be run here. */
POSTERN_API int pn_load_file(const char* path, pn_program** out);
POSTERN_API int pn_load_text(const char* text, size_t size, pn_program** out);
/* The function of that name, of a file that has several; PN_NOT_FOUND where it has none such. NULL
 * or "": @main, or the only one that is public. */
POSTERN_API int pn_load_entry(const char* path, const char* entry, pn_program** out);
/* Runs of it go on. */
POSTERN_API void pn_program_free(pn_program* program);
/* How many leaves its arguments, and its results, have; 0 of NULL. */
POSTERN_API size_t pn_program_inputs(const pn_program* program);
POSTERN_API size_t pn_program_outputs(const pn_program* program);
/* "f32[2,3]"; NULL beyond the last. */
POSTERN_API const char* pn_program_input(const pn_program* program, size_t index);
POSTERN_API const char* pn_program_output(const pn_program* program, size_t index);
/* Their names, "args[0]['w']"; "" where the file says none; NULL beyond the last. */
POSTERN_API const char* pn_program_input_name(const pn_program* program, size_t index);
POSTERN_API const char* pn_program_output_name(const pn_program* program, size_t index);
/* The names of the host functions that it calls, sorted; NULL beyond the last. */
POSTERN_API const char* pn_program_function(const pn_program* program, size_t index);
/* The names of its hooks, sorted; NULL beyond the last. */
POSTERN_API const char* pn_program_hook(const pn_program* program, size_t index);
/* Whether it holds while loops, which may never end: 1 or 0; -1 when `program` is NULL. */
POSTERN_API int pn_program_loops(const pn_program* program);

/* Runs and waits. `arguments` are of the types that pn_program_input() says. `results` has
 * pn_program_outputs() places; they are filled only when all went well. A host function that fails
 * ends it with PN_THREW or the code that it gave, one that nobody registered with PN_UNREGISTERED;
 * PN_FAILED_PRECONDITION when the program is over more devices than there are. */
POSTERN_API int pn_run(const pn_program* program, const pn_tensor* const* arguments, size_t count,
                       pn_tensor** results);

typedef struct pn_started pn_started;
/* Starts a run on a thread of the library. The program may be freed meanwhile. What ends pn_run
 * while it runs ends pn_started_wait. */
POSTERN_API int pn_start(const pn_program* program, const pn_tensor* const* arguments, size_t count,
                         pn_started** out);
/* A function under a name, for one run: see below. */
typedef struct pn_binding pn_binding;
/* More to say of a run. Whoever fills it writes zeros first: they mean what pn_start does. The
 * functions are called from threads of the library, with `user`, and must not wait. */
typedef struct pn_start_options {
  size_t size;         /* sizeof(pn_start_options), for versions to come */
  int64_t deadline_ns; /* over all its calls, from the start; 0: none */
  int32_t device;      /* that it runs on, of pn_device_count(); with a program over several: 0 */
  /* Takes what its prints write, whole lines; NULL: standard output. */
  void (*print)(void* user, const char* text, size_t size);
  /* Once, when the run has ended, so that pn_started_wait does not wait; also after a cancel. A run
   * that nobody cancels has ended when the functions that it started have returned. Never on the
   * thread that starts or cancels, and not before *out is set; it may free the run. */
  void (*ended)(void* user);
  /* Once, when the run was freed and neither function is called any more. */
  void (*release)(void* user);
  void* user;
  /* For this run alone: listeners, in place of those that its hooks of these names have, and
   * functions, in place of those of pn_register. A name that the program does not have fails, with
   * a text that lists those that it has. */
  const pn_binding* hooks;
  size_t hook_count;
  const pn_binding* functions;
  size_t function_count;
  /* Once, after `ended`: what asynchronous taps had shown by then was delivered. Of a run that is
   * started by the function of an asynchronous tap it comes at once: it would wait for itself. */
  void (*delivered)(void* user);
} pn_start_options;
/* When it fails each `user` is still the caller's. */
POSTERN_API int pn_start_with(const pn_program* program, const pn_tensor* const* arguments,
                              size_t count, const pn_start_options* options, pn_started** out);
/* --- programs as functions of the caller's memory --- */

/* Any number of threads may call one at once. Memory is dense and row-major, elements of less than
 * a byte take one each; see postern/native.h.
 *
 *   const void* in[] = {x};
 *   void* out[] = {&value, slope};
 *   int code = pn_native_call(energy, in, out);
 */
typedef struct pn_native pn_native;
typedef enum pn_derivative {
  PN_VALUE,              /* the program's results */
  PN_VALUE_AND_GRADIENT, /* and the gradients of the first, a floating-point number, by each free
                            argument of floating point */
  PN_JVP                 /* takes after the free arguments a tangent for each of floating point, and
                            gives after the results their tangents */
} pn_derivative;
/* Whoever fills it writes zeros first: they mean the defaults. */
typedef struct pn_native_options {
  size_t size;        /* sizeof(pn_native_options), for versions to come */
  int32_t derivative; /* pn_derivative */
  /* For each of the program's arguments a value that is bound to it, or NULL, which leaves it
   * free; NULL: all are free. The tensors may be freed afterwards. */
  const pn_tensor* const* bound;
  /* For each of the program's arguments its type, "f32[4,2]", where the program takes any sizes;
   * NULL: as the program says. */
  const char* const* types;
} pn_native_options;
/* Compiles the program for that. `options` may be NULL. Fails as pn_run does, and with
 * PN_INVALID_ARGUMENT where something has no derivative. */
POSTERN_API int pn_native_of(const pn_program* program, const pn_native_options* options,
                             pn_native** out);
/* Not while it is called. */
POSTERN_API void pn_native_free(pn_native* native);
/* How many pointers `in` and `out` have; 0 of NULL. */
POSTERN_API size_t pn_native_inputs(const pn_native* native);
POSTERN_API size_t pn_native_outputs(const pn_native* native);
/* "f64[8]"; NULL beyond the last. */
POSTERN_API const char* pn_native_input(const pn_native* native, size_t index);
POSTERN_API const char* pn_native_output(const pn_native* native, size_t index);
/* Runs a pn_native and returns when the results are there. Fails as pn_run does; what `out`
 * points to is then undefined. With the pn_native it is what libraries take as a callback and its
 * user data. */
POSTERN_API int pn_native_call(void* native, const void* const* in, void* const* out);

/* How many devices programs can use; the first use of the library makes them. */
POSTERN_API int pn_device_count(size_t* out);
/* Waits at most so long (negative: without a limit). PN_EMPTY while the run goes on, else how it
 * ended, and the results if well: PN_CANCELLED after pn_started_cancel or when a host function
 * ended it early, PN_TIMEOUT when its deadline has passed. */
POSTERN_API int pn_started_wait(pn_started* run, int64_t timeout_ns, pn_tensor** results);
/* Asks the run to stop. Harmless after its end. */
POSTERN_API int pn_started_cancel(pn_started* run);
/* Does not wait, nor cancel. */
POSTERN_API void pn_started_free(pn_started* run);

/* Waits for everything that was started before; PN_EMPTY when the limit (negative: none) passes
 * first. A failure that nobody has seen yet is its result. */
POSTERN_API int pn_barrier(int64_t timeout_ns);

/* --- host functions --- */

/* A firing of a call or tap. Operands are read only; results are to be filled. A tap has no
 * results. All of it belongs to the library. */
typedef struct pn_firing {
  const char* function;   /* the registered name, or that of the run's binding */
  const char* site;       /* the call's or tap's own name */
  const char* attributes; /* JSON: {"factor": {"double": "3"}} */
  int32_t device;
  uint64_t run;
  int64_t element; /* of the batch when vmap fires for each; else -1 */
  size_t operand_count, result_count;
  const pn_array* operands;
  const pn_array* results;
  int32_t asynchronous; /* 1: of an asynchronous tap, so that no program waits; else 0 */
  /* As of version 7. Inside shard_map: where the device is on the mesh, by axis; else none. */
  size_t coordinate_count;
  const int64_t* coordinates;
} pn_firing;

/* As of version 8. The value of an attribute of this name, which must be of that type; of a list
 * the element at `index`. PN_NOT_FOUND where there is none, PN_INVALID_ARGUMENT where it is of
 * another type or shorter. A text lives until the thread asks for another one. */
POSTERN_API int pn_attribute_bool(const pn_firing* firing, const char* name, int* out);
POSTERN_API int pn_attribute_int64(const pn_firing* firing, const char* name, int64_t* out);
POSTERN_API int pn_attribute_double(const pn_firing* firing, const char* name, double* out);
POSTERN_API int pn_attribute_string(const pn_firing* firing, const char* name, const char** out);
POSTERN_API int pn_attribute_bool_at(const pn_firing* firing, const char* name, size_t index,
                                     int* out);
POSTERN_API int pn_attribute_int64_at(const pn_firing* firing, const char* name, size_t index,
                                      int64_t* out);
POSTERN_API int pn_attribute_double_at(const pn_firing* firing, const char* name, size_t index,
                                       double* out);
POSTERN_API int pn_attribute_string_at(const pn_firing* firing, const char* name, size_t index,
                                       const char** out);
/* How many elements a list has; of no list PN_INVALID_ARGUMENT. */
POSTERN_API int pn_attribute_size(const pn_firing* firing, const char* name, size_t* out);

/* Returns PN_OK, or another code after pn_fail has said why. */
typedef int (*pn_function)(void* user, const pn_firing* firing);
/* For host functions: the text of the code that they are about to return. */
POSTERN_API void pn_fail(const char* text);
/* The same with a thing of the host's own, such as an exception of its language, which
 * pn_last_cause gives to whoever is told of the failure. The library takes it over, and calls
 * `release(cause)` (may be NULL) once, when nobody can ask for it any more, from any thread. */
POSTERN_API void pn_fail_with(const char* text, void* cause, void (*release)(void* cause));

/* `release(user)` is called once, when no program can call the function any more; may be NULL.
 * PN_ALREADY_EXISTS when the name is taken, unless `replace`. When it fails `user` is still the
 * caller's. */
POSTERN_API int pn_register(const char* name, pn_function function, void* user,
                            void (*release)(void* user), int replace);
/* PN_NOT_FOUND when there was none. */
POSTERN_API int pn_unregister(const char* name);

/* --- the bridge: for hosts that serve calls on threads of their own --- */

typedef struct pn_bridge pn_bridge;
/* A bridge that serves no name yet. */
POSTERN_API int pn_bridge_create(pn_bridge** out);
/* Makes the bridge the function of that name: each firing waits in its queue until somebody has
 * answered it. PN_ALREADY_EXISTS when the name is taken, also by another bridge, unless `replace`.
 */
POSTERN_API int pn_bridge_serve(pn_bridge* bridge, const char* name, int replace);

/* A firing that waits for an answer. The memory of its operands and results stays until it is
 * answered, or the bridge is closed. */
typedef struct pn_request {
  uint64_t tag; /* never 0, never given twice */
  pn_firing firing;
} pn_request;

/* The oldest firing that nobody has taken; waits at most so long (negative: without a limit, 0: not
 * at all; up to 50,000 ns: the thread looks for it and does not sleep, the less long the more often
 * that was in vain). PN_EMPTY when none came, PN_CLOSED once the bridge is ended or closed. The
 * request lives until it is answered. Any number of threads may ask. */
POSTERN_API int pn_bridge_next(pn_bridge* bridge, int64_t timeout_ns, const pn_request** out);
/* Answers with `count` arrays of the results' types, which are copied; or with NULL when the
 * results' own memory was filled. PN_NOT_FOUND for a tag that is unknown or answered; PN_BAD_RESULT
 * when the arrays do not fit, and then the request is still open. */
POSTERN_API int pn_bridge_reply(pn_bridge* bridge, uint64_t tag, const pn_array* results,
                                size_t count);
/* Writes the arrays into the results without answering, as pn_bridge_reply does before it answers,
 * and fails as that does. */
POSTERN_API int pn_bridge_fill(pn_bridge* bridge, uint64_t tag, const pn_array* results,
                               size_t count);
/* Answers with a failure; the run ends with that text, and PN_THREW. PN_UNREGISTERED (this host has
 * no such function), PN_CLOSED, PN_TIMEOUT and PN_BAD_RESULT stay what they are. */
POSTERN_API int pn_bridge_fail(pn_bridge* bridge, uint64_t tag, int code, const char* text);
/* The same with a cause, as pn_fail_with has it; it is let go of also when this fails. */
POSTERN_API int pn_bridge_fail_with(pn_bridge* bridge, uint64_t tag, int code, const char* text,
                                    void* cause, void (*release)(void* cause));
/* Whether the run of an open request was cancelled or has failed, so that nobody waits for the
 * answer: 1, 0, or -1 for an unknown tag. */
POSTERN_API int pn_bridge_stopped(const pn_bridge* bridge, uint64_t tag);
/* A descriptor that is readable while firings wait to be taken: for poll, epoll, and what stands on
 * them. The bridge's own. */
POSTERN_API int pn_bridge_descriptor(const pn_bridge* bridge);
/* For hosts that are woken by a call rather than by a descriptor: `ready(user)` is called once
 * after each PN_EMPTY of pn_bridge_next, when a firing comes or the bridge ends, from the thread
 * that brings it. It must neither wait nor use the bridge. It takes the place of an earlier one,
 * which is not called any more when this returns; NULL: none, as after pn_bridge_free. */
POSTERN_API int pn_bridge_notify(pn_bridge* bridge, void (*ready)(void* user), void* user);
/* Fails what nobody has taken and what comes later with PN_CLOSED, as pn_bridge_close does; what
 * was taken stays open, with its memory, until it is answered. */
POSTERN_API void pn_bridge_end(pn_bridge* bridge);
/* Fails what waits and what comes later with PN_CLOSED; wakes who waits in pn_bridge_next. Nothing
 * may be read or written through a request of the bridge afterwards. */
POSTERN_API void pn_bridge_close(pn_bridge* bridge);
/* Closes and frees it; no other thread may be using it. */
POSTERN_API void pn_bridge_free(pn_bridge* bridge);

/* Of pn_start_options: `function`, with `user`, or `bridge`, whose queue its firings wait in. */
struct pn_binding {
  const char* name;
  pn_function function; /* NULL: the bridge */
  pn_bridge* bridge;    /* NULL: the function */
  void* user;
  /* Once, when the run can enter it no more: it is over, and what its asynchronous taps have shown
   * was delivered. From any thread; must not wait. May be NULL. */
  void (*release)(void* user);
};

/* --- libraries and C++ functions --- */

/* Opens a shared object that states POSTERN_LIBRARY and runs its load function, once.
 * PN_NOT_FOUND when it cannot be opened, PN_FAILED_PRECONDITION when it is no such library or of
 * another version, PN_THREW when its load function fails. */
POSTERN_API int pn_load_library(const char* path);
/* The names of pn_register and of C++'s register_function, sorted; NULL beyond the last. Index 0
 * looks anew; the names live until this thread asks for index 0 again. */
POSTERN_API const char* pn_registered_function(size_t index);
/* `callee` is a `const postern::Callee*` of C++, whose function is registered; it may go
 * afterwards. PN_ALREADY_EXISTS as for pn_register. */
POSTERN_API int pn_register_callee(const char* name, const void* callee, int replace);

#ifdef __cplusplus
}
#endif
#endif
