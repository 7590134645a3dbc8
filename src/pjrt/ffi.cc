// The FFI extension's structs, which no package ships, and the calls through them.
#include "pjrt/ffi.h"

#include "core/mutex.h"
#include "pjrt/call.h"

#include <cstddef>
#include <map>

namespace postern::internal::pjrt {

struct TypeRegisterArgs {
  std::size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* type_name;
  std::size_t type_name_size;
  std::int64_t type_id;  // 0 in, the id out
  void* type_info;
};

struct UserDataAddArgs {
  std::size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_ExecuteContext* context;
  std::int64_t type_id;
  void* data;
  void (*deleter)(void*);  // never called by the plug-ins seen: they take the one of the type
};

struct RegisterHandlerArgs {
  std::size_t struct_size;  // up to `traits`, without the padding after it
  const char* target_name;
  std::size_t target_name_size;
  Handler* handler;
  const char* platform_name;
  std::size_t platform_name_size;
  int traits;
};

static_assert(sizeof(TypeRegisterArgs) == 48 && sizeof(UserDataAddArgs) == 48 &&
              offsetof(RegisterHandlerArgs, traits) == 48);

struct FfiExtension {
  PJRT_Extension_Base base;
  PJRT_Error* (*type_register)(TypeRegisterArgs*);
  PJRT_Error* (*user_data_add)(UserDataAddArgs*);
  PJRT_Error* (*register_handler)(RegisterHandlerArgs*);
};
static_assert(sizeof(FfiExtension) == 48);

const FfiExtension* find_ffi(const Plugin& plugin) {
  const auto* found = static_cast<const FfiExtension*>(plugin.extension(PJRT_Extension_Type_FFI));
  // A shorter struct is another layout: better no extension than a wrong call.
  if (found && found->base.struct_size >= sizeof(FfiExtension)) return found;
  return nullptr;
}

namespace {

const FfiExtension& ffi_of(const Plugin& plugin, std::string_view what) {
  if (!plugin.ffi())
    throw Error(ErrorCode::unimplemented,
                "XLA failed " + std::string(what) + ": the plug-in " + plugin.path() +
                    " has no FFI extension, so its programs cannot call back");
  return *plugin.ffi();
}

}  // namespace

void register_handler(const Plugin& plugin, std::string_view name, Handler* handler,
                      std::string_view platform, int traits) {
  const std::string what =
      "to register the handler \"" + std::string(name) + "\" for " + std::string(platform);
  // XLA keeps the first handler of a name and ignores later ones without a word, so the names are
  // kept here.
  static Mutex mutex;
  static auto& known = *new std::map<std::string, Handler*>;
  std::lock_guard lock(mutex);
  auto& place = known[plugin.path() + "/" + std::string(platform) + "/" + std::string(name)];
  if (place == handler) return;
  if (place)
    throw Error(ErrorCode::already_exists,
                "XLA failed " + what + ": the name has another handler already");
  auto args = make_args<RegisterHandlerArgs>();
  args.struct_size = offsetof(RegisterHandlerArgs, traits) + sizeof args.traits;
  args.target_name = name.data();
  args.target_name_size = name.size();
  args.handler = handler;
  args.platform_name = platform.data();
  args.platform_name_size = platform.size();
  args.traits = traits;
  if (PJRT_Error* error = ffi_of(plugin, what).register_handler(&args))
    throw_error(plugin.api(), error, what);
  place = handler;
}

std::int64_t register_type(const Plugin& plugin, std::string_view name) {
  const std::string what = "to register the type \"" + std::string(name) + "\"";
  static std::byte type_info[64] =
      {};  // a null deleter and room: plug-ins differ in how much they read
  auto args = make_args<TypeRegisterArgs>();
  args.type_name = name.data();
  args.type_name_size = name.size();
  args.type_info = type_info;
  if (PJRT_Error* error = ffi_of(plugin, what).type_register(&args))
    throw_error(plugin.api(), error, what);
  return args.type_id;
}

ExecuteContext::ExecuteContext(const Plugin& plugin) : plugin_(&plugin) {
  auto args = make_args<PJRT_ExecuteContext_Create_Args>();
  call<&PJRT_Api::PJRT_ExecuteContext_Create>(plugin.api(), args, "to create a run's context");
  handle_ = {args.context, Free{plugin.api()}};
}

void ExecuteContext::add(std::int64_t type_id, void* data) {
  constexpr std::string_view what = "to give a run its user data";
  auto args = make_args<UserDataAddArgs>();
  args.context = handle();
  args.type_id = type_id;
  args.data = data;
  if (PJRT_Error* error = ffi_of(*plugin_, what).user_data_add(&args))
    throw_error(plugin_->api(), error, what);
}

}  // namespace postern::internal::pjrt
