// Atoms made once, codes of the C interface by name, and the causes of errors.
#include "terms.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

namespace postern_beam {

namespace {

struct Code {
  int code;
  const char* name;
};
constexpr Code codes[] = {{PN_CANCELLED, "cancelled"},
                          {PN_UNKNOWN, "unknown"},
                          {PN_INVALID_ARGUMENT, "invalid_argument"},
                          {PN_DEADLINE_EXCEEDED, "deadline_exceeded"},
                          {PN_NOT_FOUND, "not_found"},
                          {PN_ALREADY_EXISTS, "already_exists"},
                          {PN_RESOURCE_EXHAUSTED, "resource_exhausted"},
                          {PN_FAILED_PRECONDITION, "failed_precondition"},
                          {PN_UNIMPLEMENTED, "unimplemented"},
                          {PN_INTERNAL, "internal"},
                          {PN_UNAVAILABLE, "unavailable"},
                          {PN_DATA_LOSS, "data_loss"},
                          {PN_THREW, "threw"},
                          {PN_BAD_RESULT, "bad_result"},
                          {PN_TIMEOUT, "timeout"},
                          {PN_REENTRY, "reentry"},
                          {PN_CLOSED, "closed"},
                          {PN_UNREGISTERED, "unregistered"},
                          {PN_EMPTY, "empty"}};

/// A cause has an environment of its own; the library lets go of it from any thread.
struct Cause {
  ErlNifEnv* env;
  ERL_NIF_TERM term;
};

/// The causes that are ours: another host of the process may have given the one that a run has.
struct Causes {
  std::mutex guard;
  std::unordered_set<void*> alive;
};
Causes& causes() {
  static Causes* const all = new Causes;  // runs may end after the statics have
  return *all;
}

ERL_NIF_TERM cause_term(ErlNifEnv* env, void* cause) {
  Causes& all = causes();
  const std::scoped_lock lock(all.guard);
  if (!all.alive.contains(cause)) return atoms().none;
  return enif_make_tuple2(env, enif_make_atom(env, "cause"),
                          enif_make_copy(env, static_cast<Cause*>(cause)->term));
}

ERL_NIF_TERM error_term(ErlNifEnv* env, int code, std::string_view text, ERL_NIF_TERM cause) {
  const char* name = "unknown";
  for (const Code& c : codes)
    if (c.code == code) name = c.name;
  return enif_make_tuple4(env, atoms().error, enif_make_atom(env, name), text_term(env, text),
                          cause);
}

const Atoms* made = nullptr;

}  // namespace

Atoms::Atoms(ErlNifEnv* env) {
  const auto atom = [&](const char* name) { return enif_make_atom(env, name); };
  ok = atom("ok");
  error = atom("error");
  none = atom("nil");
  yes = atom("true");
  wait = atom("wait");
  held = atom("held");
  ended = atom("postern_ended");
  print = atom("postern_print");
  ready = atom("postern_ready");
  barrier = atom("postern_barrier");
  released = atom("released");
  struct_key = atom("__struct__");
  tensor_module = atom("Elixir.Postern.Tensor");
  type = atom("type");
  shape = atom("shape");
  data = atom("data");
  parts = atom("parts");
  sharding = atom("sharding");
  compare = atom("compare");
  for (std::size_t i = 0; i < dtypes.size(); ++i)
    dtypes[i] = atom(pn_dtype_name(static_cast<int>(i)));
}

void make_atoms(ErlNifEnv* env) {
  if (!made) made = new Atoms(env);
}
const Atoms& atoms() { return *made; }

std::string text_of(ErlNifEnv* env, ERL_NIF_TERM term) {
  ErlNifBinary bytes{};
  if (!enif_inspect_binary(env, term, &bytes)) return {};
  return {reinterpret_cast<const char*>(bytes.data), bytes.size};
}

ERL_NIF_TERM text_term(ErlNifEnv* env, std::string_view text) {
  ERL_NIF_TERM out;
  unsigned char* const bytes = enif_make_new_binary(env, text.size(), &out);
  if (!text.empty()) std::memcpy(bytes, text.data(), text.size());
  return out;
}

ERL_NIF_TERM ok(ErlNifEnv* env, ERL_NIF_TERM value) {
  return enif_make_tuple2(env, atoms().ok, value);
}
ERL_NIF_TERM error(ErlNifEnv* env, int code, std::string_view text) {
  return error_term(env, code, text, atoms().none);
}
ERL_NIF_TERM cut_short(ErlNifEnv* env, std::string_view text) {
  const std::string_view begin = text.substr(0, text.find('\0'));
  return error(env, PN_INVALID_ARGUMENT,
               "a NUL stands in a name or path, behind '" + std::string(begin) + "'");
}
ERL_NIF_TERM last_error(ErlNifEnv* env, int code) {
  return error_term(env, code, pn_last_error(), cause_term(env, pn_last_cause()));
}

int code_of(ErlNifEnv* env, ERL_NIF_TERM atom) {
  for (const Code& c : codes)
    if (enif_is_identical(atom, enif_make_atom(env, c.name))) return c.code;
  return PN_UNKNOWN;
}

void* keep_cause(ErlNifEnv* env, ERL_NIF_TERM term) {
  ErlNifEnv* const own = enif_alloc_env();
  // Through its bytes: a copy would share binaries with the term, also those of operands.
  ErlNifBinary bytes;
  ERL_NIF_TERM copy = atoms().none;
  if (enif_term_to_binary(env, term, &bytes)) {
    enif_binary_to_term(own, bytes.data, bytes.size, &copy, 0);
    enif_release_binary(&bytes);
  }
  auto cause = std::make_unique<Cause>(Cause{own, copy});
  Causes& all = causes();
  const std::scoped_lock lock(all.guard);
  all.alive.insert(cause.get());
  return cause.release();
}
void release_cause(void* cause) {
  Causes& all = causes();
  {
    const std::scoped_lock lock(all.guard);
    all.alive.erase(cause);
  }
  const std::unique_ptr<Cause> held(static_cast<Cause*>(cause));
  enif_free_env(held->env);
}

}  // namespace postern_beam
