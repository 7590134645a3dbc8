// The other way to have a process answer a call, for comparison: operands are copied into a binary,
// enif_send gives it to the process, and XLA's thread waits on a condition variable.
#include <erl_nif.h>
#include <postern/c.h>

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

namespace {

struct Call {
  std::mutex guard;
  std::condition_variable answered;
  const pn_firing* firing;
  bool done = false;
};

int ask(void* user, const pn_firing* firing) {
  Call call;
  call.firing = firing;
  ErlNifEnv* const env = enif_alloc_env();
  ERL_NIF_TERM bytes;
  const pn_array& operand = firing->operands[0];
  std::memcpy(enif_make_new_binary(env, operand.bytes, &bytes), operand.data, operand.bytes);
  const auto address = static_cast<ErlNifUInt64>(reinterpret_cast<std::uintptr_t>(&call));
  const ERL_NIF_TERM message =
      enif_make_tuple3(env, enif_make_atom(env, "call"), enif_make_uint64(env, address), bytes);
  const bool sent = enif_send(nullptr, static_cast<ErlNifPid*>(user), env, message) != 0;
  enif_free_env(env);
  if (!sent) return PN_CLOSED;
  std::unique_lock lock(call.guard);
  call.answered.wait(lock, [&] { return call.done; });
  return PN_OK;
}

// (name) -> :ok. The caller gets {:call, call, bytes}.
ERL_NIF_TERM serve(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  ErlNifBinary bytes;
  if (!enif_inspect_binary(env, arguments[0], &bytes)) return enif_make_badarg(env);
  const std::string name(reinterpret_cast<const char*>(bytes.data), bytes.size);
  auto* const self = new ErlNifPid;
  enif_self(env, self);
  const int code = pn_register(
      name.c_str(), ask, self, [](void* pid) { delete static_cast<ErlNifPid*>(pid); }, 1);
  return enif_make_atom(env, code == PN_OK ? "ok" : "error");
}

// (call, bytes) -> :ok
ERL_NIF_TERM reply(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  ErlNifUInt64 address = 0;
  ErlNifBinary bytes;
  if (!enif_get_uint64(env, arguments[0], &address) ||
      !enif_inspect_binary(env, arguments[1], &bytes))
    return enif_make_badarg(env);
  Call& call = *reinterpret_cast<Call*>(static_cast<std::uintptr_t>(address));
  const pn_array& result = call.firing->results[0];
  if (bytes.size != result.bytes) return enif_make_badarg(env);
  std::memcpy(result.data, bytes.data, bytes.size);
  const std::scoped_lock lock(call.guard);
  call.done = true;
  call.answered.notify_one();
  return enif_make_atom(env, "ok");
}

ErlNifFunc functions[] = {{"serve", 1, serve, 0}, {"reply", 2, reply, 0}};

}  // namespace

ERL_NIF_INIT(Elixir.Copying, functions, nullptr, nullptr, nullptr, nullptr)
