// The callbacks by which XLA asks for the store.
#include "pjrt/key_values.h"

#include <postern/error.h>

#include <pjrt_c_api.h>

namespace postern::internal::pjrt {

namespace {

thread_local const KeyValues* store_in_scope = nullptr;

template <class Args>
const KeyValues& store_of(const Args* args) {
  return *static_cast<const KeyValues*>(args->user_arg);
}

/// Runs `act`; what it throws becomes an error of XLA's, which has fewer codes.
template <class Args, class Act>
PJRT_Error* answered(Args* args, const Act& act) noexcept {
  const auto failed = [&](ErrorCode code, std::string_view text) {
    return (*args->callback_error)(static_cast<PJRT_Error_Code>(code), text.data(), text.size());
  };
  try {
    act();
    return nullptr;
  } catch (const Error& e) {
    return failed(e.code() <= ErrorCode::unauthenticated ? e.code() : ErrorCode::internal,
                  e.what());
  } catch (const std::exception& e) {
    return failed(ErrorCode::internal, e.what());
  } catch (...) {
    return failed(ErrorCode::internal, "it threw what is no std::exception");
  }
}

/// Answers with a value, in memory of its own that XLA frees.
template <class Args>
void give(Args* args, const std::string& value) {
  args->value = new char[value.size() + 1]();
  value.copy(args->value, value.size());
  args->value_size = value.size();
  args->value_deleter_callback = [](char* text) { delete[] text; };
}

PJRT_Error* put_value(PJRT_KeyValuePutCallback_Args* args) {
  return answered(args, [&] {
    store_of(args).put({args->key, args->key_size}, {args->value, args->value_size});
  });
}

PJRT_Error* get_value(PJRT_KeyValueGetCallback_Args* args) {
  return answered(args, [&] {
    give(args, store_of(args).get({args->key, args->key_size},
                                  std::chrono::milliseconds(args->timeout_in_ms)));
  });
}

PJRT_Error* try_get_value(PJRT_KeyValueTryGetCallback_Args* args) {
  return answered(args, [&] {
    const std::string key(args->key, args->key_size);
    const std::optional<std::string> value = store_of(args).try_get(key);
    if (!value) throw Error(ErrorCode::not_found, "no process has put '" + key + "'");
    give(args, *value);
  });
}

}  // namespace

KeyValueScope::KeyValueScope(const KeyValues& store) : Scoped(store_in_scope, &store) {}

void give_key_values(PJRT_Client_Create_Args& args) {
  if (!store_in_scope) return;
  args.kv_put_callback = put_value;
  args.kv_get_callback = get_value;
  args.kv_try_get_callback = try_get_value;
  args.kv_put_user_arg = args.kv_get_user_arg = args.kv_try_get_user_arg =
      const_cast<KeyValues*>(store_in_scope);
}

}  // namespace postern::internal::pjrt
