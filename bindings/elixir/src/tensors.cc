// Reads tensors as arrays over the binaries' memory, and shows results as binaries.
#include "tensors.h"

#include <cstring>

#include "resource.h"
#include "terms.h"

namespace postern_beam {

namespace {

// Smaller ones are the process's own in any case.
constexpr std::size_t heap_binary = 64;

/// A result that binaries show.
struct Shown {
  pn_tensor* tensor;
  explicit Shown(pn_tensor* t) : tensor(t) {}
  ~Shown() { pn_tensor_free(tensor); }
  Shown(const Shown&) = delete;
};

bool read_shape(ErlNifEnv* env, ERL_NIF_TERM term, std::vector<std::int64_t>& dims) {
  int rank = 0;
  const ERL_NIF_TERM* parts = nullptr;
  if (!enif_get_tuple(env, term, &rank, &parts)) return false;
  dims.resize(static_cast<std::size_t>(rank));
  for (std::size_t i = 0; i < dims.size(); ++i) {
    ErlNifSInt64 dim = 0;
    if (!enif_get_int64(env, parts[i], &dim)) return false;
    dims[i] = dim;
  }
  return true;
}

bool read_dtype(ERL_NIF_TERM term, int& dtype) {
  const auto& all = atoms().dtypes;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!enif_is_identical(term, all[i])) continue;
    dtype = static_cast<int>(i);
    return true;
  }
  return false;
}

/// The bytes stay where they are as long as a copy of the term is alive.
int borrow(ErlNifEnv*, const TensorTerm& tensor, pn_tensor** out) {
  const pn_array array = tensor.array();
  if (array.bytes <= heap_binary) return pn_tensor_copy(&array, out);
  ErlNifEnv* const own = enif_alloc_env();
  ErlNifBinary held;
  enif_inspect_binary(own, enif_make_copy(own, tensor.data_term), &held);
  pn_array lent = array;
  lent.data = held.data;
  const int code = pn_tensor_borrow(
      &lent, [](void* env) { enif_free_env(static_cast<ErlNifEnv*>(env)); }, own, out);
  if (code != PN_OK) enif_free_env(own);
  return code;
}

}  // namespace

bool TensorTerm::read(ErlNifEnv* env, ERL_NIF_TERM term, TensorTerm& out) {
  ERL_NIF_TERM type, shape;
  return enif_get_map_value(env, term, atoms().type, &type) &&
         enif_get_map_value(env, term, atoms().shape, &shape) &&
         enif_get_map_value(env, term, atoms().data, &out.data_term) &&
         read_dtype(type, out.dtype) && read_shape(env, shape, out.dims) &&
         enif_inspect_binary(env, out.data_term, &out.data);
}

pn_array TensorTerm::array() const {
  return {dtype, static_cast<std::int32_t>(dims.size()), dims.data(), data.data, data.size};
}

namespace {

bool is_shards(ErlNifEnv* env, ERL_NIF_TERM term, ERL_NIF_TERM* parts) {
  return enif_get_map_value(env, term, atoms().parts, parts) != 0;
}

/// Of %{parts: tensors, sharding: text, compare: boolean}.
int together(ErlNifEnv* env, ERL_NIF_TERM term, ERL_NIF_TERM parts, pn_tensor** out) {
  ERL_NIF_TERM sharding, compare;
  if (!enif_get_map_value(env, term, atoms().sharding, &sharding) ||
      !enif_get_map_value(env, term, atoms().compare, &compare))
    return -1;
  Arguments shards;
  if (const int code = shards.add(env, parts); code != PN_OK) return code;
  return pn_tensor_of_shards(text_of(env, sharding).c_str(), shards.tensors().data(),
                             shards.tensors().size(), enif_is_identical(compare, atoms().yes), out);
}

}  // namespace

Arguments::~Arguments() {
  for (pn_tensor* t : tensors_) pn_tensor_free(t);
}

int Arguments::add(ErlNifEnv* env, ERL_NIF_TERM list) {
  ERL_NIF_TERM head, parts;
  while (enif_get_list_cell(env, list, &head, &list)) {
    TensorTerm tensor;
    pn_tensor* made = nullptr;
    int code = -1;
    if (is_shards(env, head, &parts))
      code = together(env, head, parts, &made);
    else if (TensorTerm::read(env, head, tensor))
      code = borrow(env, tensor, &made);
    if (code != PN_OK) return code;
    tensors_.push_back(made);
  }
  return PN_OK;
}

std::size_t bytes_of(ErlNifEnv* env, ERL_NIF_TERM list) {
  std::size_t sum = 0;
  ERL_NIF_TERM head, data;
  ErlNifBinary bytes;
  while (enif_get_list_cell(env, list, &head, &list)) {
    if (is_shards(env, head, &data)) return SIZE_MAX;  // copies of a part are compared
    if (!enif_get_map_value(env, head, atoms().data, &data)) data = head;
    if (enif_inspect_binary(env, data, &bytes)) sum += bytes.size;
  }
  return sum;
}

ERL_NIF_TERM address(ErlNifEnv* env, int, const ERL_NIF_TERM arguments[]) {
  ErlNifBinary bytes;
  if (!enif_inspect_binary(env, arguments[0], &bytes)) return enif_make_badarg(env);
  return enif_make_uint64(env, reinterpret_cast<std::uintptr_t>(bytes.data));
}

ERL_NIF_TERM shape_term(ErlNifEnv* env, const pn_array& array) {
  std::vector<ERL_NIF_TERM> dims;
  for (std::int32_t i = 0; i < array.rank; ++i) dims.push_back(enif_make_int64(env, array.dims[i]));
  return enif_make_tuple_from_array(env, dims.data(), static_cast<unsigned>(dims.size()));
}

ERL_NIF_TERM tensor_term(ErlNifEnv* env, const pn_array& array, ERL_NIF_TERM data) {
  const Atoms& a = atoms();
  ERL_NIF_TERM keys[] = {a.struct_key, a.type, a.shape, a.data};
  ERL_NIF_TERM values[] = {a.tensor_module, a.dtypes[static_cast<std::size_t>(array.dtype)],
                           shape_term(env, array), data};
  ERL_NIF_TERM out;
  enif_make_map_from_arrays(env, keys, values, std::size(keys), &out);
  return out;
}

int result_term(ErlNifEnv* env, pn_tensor* tensor, ERL_NIF_TERM* out) {
  pn_array array{};
  const int code = pn_tensor_view(tensor, &array);
  if (code != PN_OK || array.bytes <= heap_binary) {
    if (code == PN_OK)
      *out = tensor_term(env, array,
                         text_term(env, {static_cast<const char*>(array.data), array.bytes}));
    pn_tensor_free(tensor);
    return code;
  }
  Shown* const shown = Resource<Shown>::make(tensor);
  const ERL_NIF_TERM data = enif_make_resource_binary(env, shown, array.data, array.bytes);
  enif_release_resource(shown);
  *out = tensor_term(env, array, data);
  return PN_OK;
}

int shards_term(ErlNifEnv* env, pn_tensor* tensor, ERL_NIF_TERM* out) {
  std::vector<ERL_NIF_TERM> shards;
  int code = PN_OK;
  while (code == PN_OK) {
    std::int32_t device = 0;
    pn_tensor* shard = nullptr;
    ERL_NIF_TERM term{};
    code = pn_tensor_shard(tensor, shards.size(), &device, &shard);
    if (code == PN_OK) code = result_term(env, shard, &term);
    if (code == PN_OK) shards.push_back(enif_make_tuple2(env, enif_make_int(env, device), term));
  }
  pn_tensor_free(tensor);
  *out = enif_make_list_from_array(env, shards.data(), static_cast<unsigned>(shards.size()));
  return code == PN_NOT_FOUND ? static_cast<int>(PN_OK) : code;
}

bool open_tensors(ErlNifEnv* env) { return Resource<Shown>::open(env, "postern_result"); }

}  // namespace postern_beam
