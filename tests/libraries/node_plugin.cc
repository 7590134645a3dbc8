// The CPU's plug-in as a node of several would be made: it wants to be told which node it is and of
// how many, tells the others who it is by the key-value store, as XLA's GPU clients do with what
// NCCL needs, and makes a client when all have answered.
#include <dlfcn.h>
#include <pjrt_c_api.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct PJRT_Error {
  PJRT_Error_Code code;
  std::string text;
};

namespace {

const PJRT_Api* real = nullptr;

PJRT_Error* failed(PJRT_Error_Code code, const char* text, size_t size) {
  return new PJRT_Error{code, {text, size}};
}
PJRT_Error* failed(std::string_view text) {
  return failed(PJRT_Error_Code_INTERNAL, text.data(), text.size());
}
PJRT_CallbackError callback_error = failed;

/// What the real plug-in reports, as one of ours.
PJRT_Error* taken(PJRT_Error* error) {
  if (!error) return nullptr;
  PJRT_Error_Message_Args message{};
  message.struct_size = sizeof message;
  message.error = error;
  real->PJRT_Error_Message(&message);
  PJRT_Error* const out = failed({message.message, message.message_size});
  PJRT_Error_Destroy_Args destroy{};
  destroy.struct_size = sizeof destroy;
  destroy.error = error;
  real->PJRT_Error_Destroy(&destroy);
  return out;
}

std::optional<std::int64_t> option(const PJRT_Client_Create_Args* args, std::string_view name) {
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& v = args->create_options[i];
    if (std::string_view(v.name, v.name_size) == name && v.type == PJRT_NamedValue_kInt64)
      return v.int64_value;
  }
  return {};
}

PJRT_Error* put(PJRT_Client_Create_Args* args, const std::string& key, const std::string& value) {
  PJRT_KeyValuePutCallback_Args call{};
  call.struct_size = sizeof call;
  call.key = key.data();
  call.key_size = key.size();
  call.value = value.data();
  call.value_size = value.size();
  call.callback_error = &callback_error;
  call.user_arg = args->kv_put_user_arg;
  return args->kv_put_callback(&call);
}
PJRT_Error* get(PJRT_Client_Create_Args* args, const std::string& key, int limit_ms,
                std::string* value) {
  PJRT_KeyValueGetCallback_Args call{};
  call.struct_size = sizeof call;
  call.key = key.data();
  call.key_size = key.size();
  call.timeout_in_ms = limit_ms;
  call.callback_error = &callback_error;
  call.user_arg = args->kv_get_user_arg;
  if (PJRT_Error* error = args->kv_get_callback(&call)) return error;
  value->assign(call.value, call.value_size);
  call.value_deleter_callback(call.value);
  return nullptr;
}
PJRT_Error_Code code_of_try_get(PJRT_Client_Create_Args* args, const std::string& key) {
  PJRT_KeyValueTryGetCallback_Args call{};
  call.struct_size = sizeof call;
  call.key = key.data();
  call.key_size = key.size();
  call.callback_error = &callback_error;
  call.user_arg = args->kv_try_get_user_arg;
  PJRT_Error* const error = args->kv_try_get_callback(&call);
  if (!error) {
    call.value_deleter_callback(call.value);
    return PJRT_Error_Code_OK;
  }
  const PJRT_Error_Code code = error->code;
  delete error;
  return code;
}

PJRT_Error* create(PJRT_Client_Create_Args* args) {
  const auto nodes = option(args, "num_nodes"), node = option(args, "node_id");
  if (!nodes || !node || *node < 0 || *node >= *nodes)
    return failed("num_nodes and node_id must be integers, the latter the smaller one");
  if (!args->kv_put_callback || !args->kv_get_callback || !args->kv_try_get_callback)
    return failed("several nodes need a key-value store");
  if (code_of_try_get(args, "nobody") != PJRT_Error_Code_NOT_FOUND)
    return failed("what nobody has put must not be found");
  const std::string zero("\0 zero", 6);  // any bytes
  if (PJRT_Error* e = put(args, "node " + std::to_string(*node), zero + std::to_string(*node)))
    return e;
  for (std::int64_t other = 0; other < *nodes; ++other) {
    std::string value;
    if (PJRT_Error* e = get(args, "node " + std::to_string(other), 20'000, &value)) return e;
    if (value != zero + std::to_string(other)) return failed("a node says something else");
  }
  if (code_of_try_get(args, "node 0") != PJRT_Error_Code_OK)
    return failed("what was put must be found");
  std::string value;
  PJRT_Error* const late = get(args, "nobody", 30, &value);
  if (!late || late->code != PJRT_Error_Code_DEADLINE_EXCEEDED)
    return failed("a wait for what nobody puts must end with its limit");
  delete late;
  PJRT_Client_Create_Args alone{};
  alone.struct_size = sizeof alone;
  PJRT_Error* const error = taken(real->PJRT_Client_Create(&alone));
  args->client = alone.client;
  return error;
}

void destroy(PJRT_Error_Destroy_Args* args) { delete args->error; }
void message(PJRT_Error_Message_Args* args) {
  args->message = args->error->text.data();
  args->message_size = args->error->text.size();
}
PJRT_Error* code(PJRT_Error_GetCode_Args* args) {
  args->code = args->error->code;
  return nullptr;
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api* const api = []() -> const PJRT_Api* {
    void* library = dlopen(REAL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (!library) return nullptr;
    real = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
    static std::vector<char> copy(reinterpret_cast<const char*>(real),
                                  reinterpret_cast<const char*>(real) + real->struct_size);
    auto* mine = reinterpret_cast<PJRT_Api*>(copy.data());
    mine->PJRT_Client_Create = create;
    mine->PJRT_Error_Destroy = destroy;
    mine->PJRT_Error_Message = message;
    mine->PJRT_Error_GetCode = code;
    return mine;
  }();
  return api;
}
