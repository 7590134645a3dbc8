// The NIFs of bridges and requests: calls, taps and hooks that processes answer.
#pragma once
#include <erl_nif.h>

#include <memory>

#include "programs.h"

namespace postern_beam {

class Service;

/// (ref) -> {:ok, bridge}, whose owner is the caller: when it ends the bridge does.
Nif bridge_new;
/// (bridge, name, replace) -> :ok
Nif bridge_serve;
/// (bridge, name) -> whether a call of that name comes to the bridge
Nif bridge_serves;
/// (bridge, copy_below) -> {:ok, request, operands}; :wait when none comes within some
/// microseconds, and then the owner gets {:postern_ready, ref} when one does. Operands of at least
/// copy_below bytes are the program's own memory.
Nif bridge_next;
/// (bridge) -> :ok. What is open fails.
Nif bridge_end;
/// (request) -> {function, site, attributes, device, run, element, asynchronous}
Nif request_info;
/// (request) -> [{type, shape}] of the results
Nif request_results;
/// (request, pid) -> :ok. From now on its end fails the request.
Nif request_assign;
/// (request, result, offset, iodata) -> :ok. Writes into the result's own memory.
Nif request_put;
/// (request, results or :filled) -> :ok; :held while binaries show the operands, behind which it is
/// answered. A result is a tensor, or a binary of its bytes.
Nif request_reply;
/// (request, code, text, cause or nil) -> :ok or :held. An answer to a run that has ended is an
/// error, :cancelled, and counts.
Nif request_fail;
/// (request) -> whether it was answered and is held
Nif request_held;
/// (request) -> true when nobody waits for the answer any more
Nif request_stopped;

/// That of a bridge's term; null when it is none.
std::shared_ptr<Service> service_of(ErlNifEnv* env, ERL_NIF_TERM term);

bool open_serving(ErlNifEnv* env);

}  // namespace postern_beam
