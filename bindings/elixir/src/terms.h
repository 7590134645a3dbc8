// Terms of the BEAM and what they stand for: atoms, errors, tensors.
#pragma once
#include <erl_nif.h>
#include <postern/c.h>

#include <array>
#include <string>
#include <string_view>

namespace postern_beam {

/// Atoms are the VM's own for ever, so they are made once.
struct Atoms {
  explicit Atoms(ErlNifEnv* env);
  ERL_NIF_TERM ok, error, none, yes, wait, held, ended, print, ready, barrier, released;
  ERL_NIF_TERM struct_key, tensor_module, type, shape, data, parts, sharding, compare;
  std::array<ERL_NIF_TERM, PN_F4E2M1FN + 1> dtypes;
};
void make_atoms(ErlNifEnv* env);
const Atoms& atoms();

/// A binary's bytes; "" of what is none.
std::string text_of(ErlNifEnv* env, ERL_NIF_TERM term);
ERL_NIF_TERM text_term(ErlNifEnv* env, std::string_view text);
/// {:ok, value}
ERL_NIF_TERM ok(ErlNifEnv* env, ERL_NIF_TERM value);
/// {:error, code, text, cause}: cause is {:cause, term}, or nil.
ERL_NIF_TERM error(ErlNifEnv* env, int code, std::string_view text);
/// Names and paths that hold a NUL, which C would cut there; and what is said of them.
inline bool is_cut_short(std::string_view text) { return text.find('\0') != text.npos; }
ERL_NIF_TERM cut_short(ErlNifEnv* env, std::string_view text);
/// What the thread's last call of the C interface said.
ERL_NIF_TERM last_error(ErlNifEnv* env, int code);

/// The code that an atom names; PN_UNKNOWN for one that names none.
int code_of(ErlNifEnv* env, ERL_NIF_TERM atom);

/// A term that outlives the call that it came with, as the cause of a failure of a run.
void* keep_cause(ErlNifEnv* env, ERL_NIF_TERM term);
void release_cause(void* cause);

}  // namespace postern_beam
