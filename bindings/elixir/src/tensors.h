// %Postern.Tensor{} to arrays of the C interface and back.
#pragma once
#include <erl_nif.h>
#include <postern/c.h>

#include <cstdint>
#include <vector>

namespace postern_beam {

/// What a %Postern.Tensor{} says; the bytes are the term's.
struct TensorTerm {
  int dtype = 0;
  std::vector<std::int64_t> dims;
  ErlNifBinary data{};
  ERL_NIF_TERM data_term{};

  /// Null when the term is none.
  static bool read(ErlNifEnv* env, ERL_NIF_TERM term, TensorTerm& out);
  pn_array array() const;
};

/// The arguments of a run, and what holds them.
class Arguments {
 public:
  Arguments() = default;
  Arguments(const Arguments&) = delete;
  ~Arguments();
  /// Of tensors, and of what Postern.Shards makes of them. PN_OK, or the code of what
  /// pn_last_error() tells; -1 when a term is neither.
  int add(ErlNifEnv* env, ERL_NIF_TERM list);
  const std::vector<pn_tensor*>& tensors() const { return tensors_; }

 private:
  std::vector<pn_tensor*> tensors_;
};
/// What a normal scheduler may copy: some 20 us.
constexpr std::size_t quick_bytes = std::size_t{128} << 10;
/// How many bytes tensors, or binaries of their bytes, have together.
std::size_t bytes_of(ErlNifEnv* env, ERL_NIF_TERM list);

ERL_NIF_TERM shape_term(ErlNifEnv* env, const pn_array& array);
/// %Postern.Tensor{} of the array's type over these bytes.
ERL_NIF_TERM tensor_term(ErlNifEnv* env, const pn_array& array, ERL_NIF_TERM data);
/// Takes the tensor over: the binary is its memory, and keeps it.
int result_term(ErlNifEnv* env, pn_tensor* tensor, ERL_NIF_TERM* out);

/// Takes the tensor over: [{device, %Postern.Tensor{}}] of what each device has.
int shards_term(ErlNifEnv* env, pn_tensor* tensor, ERL_NIF_TERM* out);

/// (binary) -> where its bytes are: for tests of what is not copied.
ERL_NIF_TERM address(ErlNifEnv* env, int count, const ERL_NIF_TERM arguments[]);

bool open_tensors(ErlNifEnv* env);

}  // namespace postern_beam
