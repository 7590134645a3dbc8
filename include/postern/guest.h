/* Functions for the programs of another XLA in this process: JAX's, or those of whoever has a
 * client of PJRT of their own, in any language. Postern's handler takes what that XLA hands to a
 * custom call, and gives typed errors, limits of time, queues for asynchronous taps, listeners and
 * the live page.
 *
 * 1. pn_register (postern/c.h) makes a function known by a name.
 * 2. The extension PJRT_Extension_Type_FFI of the plug-in takes pn_guest_handler() under a target
 *    such as "postern_guest" and the platform "Host".
 * 3. A program calls it:
 *
 *   %0 = "stablehlo.custom_call"(%x) {call_target_name = "postern_guest", api_version = 4 : i32,
 *       has_side_effect = true, backend_config = {function = "demo.roots", name = "roots",
 *       file = "client.py", line = 1 : i64, kind = "call", timeout = 2000000000 : i64}}
 *       : (tensor<3xf32>) -> tensor<3xf32>
 *
 * examples/guest/client.py is all of it, with a client in Python's ctypes alone. Every function
 * that returns a pn_code fails as those of postern/c.h do; others never fail.
 */
#ifndef POSTERN_GUEST_H
#define POSTERN_GUEST_H

#include <postern/c.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An XLA_FFI_Handler, for that XLA to register for custom calls with api_version 4 on CPUs, for the
 * stage "execute". It enters the function of pn_register that the call's attributes name:
 * `function`, `name`, `file`, `kind` ("call", "tap" or "async") are strings, `line`, `timeout`
 * (nanoseconds, 0: none) and `every` are i64; `levels` (string, as "3:TF,2:TT": sizes of batches,
 * outermost first, and which operands have them in front) and `parallel` (i64) are of calls for
 * each element of a batch; `paths` (string) names the operands, a line for each; `transforms`
 * (string, as "jvp,transpose") is of taps that show derivatives; with `kept` (i64, not 0) the
 * function is the one that has the name when the program is loaded, as long as the program is; with
 * `axes` (string, as "2 x", a line for each axis of a mesh) the last operand, a ui32, is the
 * position on that mesh and not the function's; `meets` (i64) devices of one program make the call
 * with the same operands, which then enters the function once, as on the device `leader` (i64), and
 * all get what comes of it. Those that begin with "with_" are the function's own. Tokens among
 * operands and results are passed over. */
POSTERN_API void* pn_guest_handler(void);
/* The same for the stage "instantiate". Where it is registered a call costs far less. What it makes
 * has the type of these two, an XLA_FFI_TypeId and an XLA_FFI_TypeInfo, which must be registered
 * before the handlers. */
POSTERN_API void* pn_guest_instantiate(void);
POSTERN_API void* pn_guest_state_type(void);
POSTERN_API void* pn_guest_state_info(void);
/* The same four for programs on a platform, "cpu" or "cuda". Those for GPUs copy operands and
 * results; they are PN_NOT_FOUND where no driver is installed, PN_UNAVAILABLE where it finds no
 * GPU. PN_INVALID_ARGUMENT for another platform. */
typedef struct pn_guest_parts {
  void *instantiate, *execute, *state_type, *state_info;
} pn_guest_parts;
POSTERN_API int pn_guest_handlers(const char* platform, pn_guest_parts* out);
/* --- where a thread stands --- */

/* The device of the innermost host function that the calling thread is inside of; -1 outside. */
POSTERN_API int pn_inside_device(void);
/* The device whose guest's program waits for the calling thread, the innermost one; -1 where none
 * does: outside of functions, and in those of asynchronous taps; -2 where all devices that the
 * program runs on wait. */
POSTERN_API int pn_guest_device(void);
/* The platform of that device, as in pn_guest_handlers; NULL where there is none. */
POSTERN_API const char* pn_guest_platform(void);
/* How many calls of guests' programs the calling thread has made: a program that has ended when XLA
 * returns from starting it makes its calls on the thread that started it. */
POSTERN_API uint64_t pn_guest_calls(void);
/* A call that fails ends its program with an error whose text ends in "[postern failure NUMBER]".
 * Returns that failure's code, and makes its text and cause the thread's last error; of failures
 * that 16 have followed the cause is gone. PN_NOT_FOUND for a number that was never given, or that
 * 256 have followed. For 0 it is the oldest failure of a program's run that nobody has asked about:
 * XLA may tell nobody of it where a later program of the same thread succeeds. */
POSTERN_API int pn_guest_failure(uint64_t number);

#ifdef __cplusplus
}
#endif
#endif
