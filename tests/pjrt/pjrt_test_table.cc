// PJRT's table replaced by one that fails and counts: errors are translated, and nothing leaks.
#include "pjrt/call.h"
#include "pjrt/key_values.h"
#include "pjrt_test.h"

// The header only declares it; errors of this shape are made and freed by the table below.
struct PJRT_Error {
  std::string text;
  PJRT_Error_Code code;
};

namespace postern::internal::pjrt {
namespace {

struct Counts {
  int errors = 0, events = 0, buffers = 0, executables = 0, loaded = 0;
};
Counts made, gone;

PJRT_Error* refuse_call() {
  ++made.errors;
  return new PJRT_Error{"no luck", PJRT_Error_Code_DATA_LOSS};
}

PJRT_Api counting_table() {
  made = gone = {};
  PJRT_Api api{};
  api.struct_size = sizeof api;
  api.pjrt_api_version.minor_version = 81;
  api.PJRT_Error_Destroy = [](PJRT_Error_Destroy_Args* args) {
    ++gone.errors;
    delete args->error;
  };
  api.PJRT_Error_Message = [](PJRT_Error_Message_Args* args) {
    args->message = args->error->text.data();
    args->message_size = args->error->text.size();
  };
  api.PJRT_Error_GetCode = [](PJRT_Error_GetCode_Args* args) -> PJRT_Error* {
    args->code = args->error->code;
    return nullptr;
  };
  api.PJRT_Event_Destroy = [](PJRT_Event_Destroy_Args*) -> PJRT_Error* {
    ++gone.events;
    return nullptr;
  };
  api.PJRT_Event_Await = [](PJRT_Event_Await_Args*) { return refuse_call(); };
  api.PJRT_Buffer_Destroy = [](PJRT_Buffer_Destroy_Args*) -> PJRT_Error* {
    ++gone.buffers;
    return refuse_call();
  };
  api.PJRT_LoadedExecutable_GetExecutable =
      [](PJRT_LoadedExecutable_GetExecutable_Args* args) -> PJRT_Error* {
    args->executable = reinterpret_cast<PJRT_Executable*>(&made);
    return nullptr;
  };
  api.PJRT_Executable_NumOutputs = [](PJRT_Executable_NumOutputs_Args*) { return refuse_call(); };
  api.PJRT_Executable_Destroy = [](PJRT_Executable_Destroy_Args*) -> PJRT_Error* {
    ++gone.executables;
    return nullptr;
  };
  api.PJRT_LoadedExecutable_Destroy = [](PJRT_LoadedExecutable_Destroy_Args*) -> PJRT_Error* {
    ++gone.loaded;
    return nullptr;
  };
  return api;
}

template <class Handle>
Handle* some_handle() {
  return reinterpret_cast<Handle*>(&made);
}

TEST(PjrtCall, AnErrorIsTurnedIntoAnExceptionAndFreed) {
  const PJRT_Api api = counting_table();
  {
    const Event event(&api, some_handle<PJRT_Event>());
    const auto error = error_of<Error>([&] { event.await(); });
    EXPECT_EQ(error.code(), ErrorCode::data_loss);
    EXPECT_TRUE(contains(error.what(), "no luck")) << error.what();
  }
  EXPECT_EQ(made.errors, 1);
  EXPECT_EQ(gone.errors, 1);
  EXPECT_EQ(gone.events, 1);
}

TEST(PjrtCall, ACallbackThatIsNotTakenComesFromThisThread) {
  PJRT_Api api = counting_table();
  api.PJRT_Event_OnReady = [](PJRT_Event_OnReady_Args*) { return refuse_call(); };
  const Event event(&api, some_handle<PJRT_Event>());
  std::vector<std::string> told;
  const auto tell = [](void* user, const Failure* failure) noexcept {
    static_cast<std::vector<std::string>*>(user)->push_back(failure ? failure->text : "well");
  };
  EXPECT_THROW(event.on_ready(tell, &told), Error);
  EXPECT_TRUE(told.empty());
  event.surely_on_ready(tell, &told);
  api.PJRT_Event_Await = [](PJRT_Event_Await_Args*) -> PJRT_Error* { return nullptr; };
  event.surely_on_ready(tell, &told);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_TRUE(contains(told[0], "no luck")) << told[0];
  EXPECT_EQ(told[1], "well");
  EXPECT_EQ(gone.errors, made.errors);
}

TEST(PjrtCall, HandlesGoOnceHoweverTheyMove) {
  const PJRT_Api api = counting_table();
  {
    Event first(&api, some_handle<PJRT_Event>());
    Event second = std::move(first);
    first = std::move(second);
    Buffer one(&api, some_handle<PJRT_Buffer>());
    Buffer two(&api, some_handle<PJRT_Buffer>());
    two = std::move(one);
    Buffer given(&api, some_handle<PJRT_Buffer>());
    EXPECT_NE(given.release(), nullptr);
  }
  EXPECT_EQ(gone.events, 1);
  EXPECT_EQ(gone.buffers, 2);
  EXPECT_EQ(gone.errors, 2);  // destroying failed; the errors went all the same
}

TEST(PjrtCall, AnExecutableThatCannotBeDescribedIsFreed) {
  const PJRT_Api api = counting_table();
  EXPECT_THROW(Executable(&api, some_handle<PJRT_LoadedExecutable>(), true), Error);
  EXPECT_EQ(gone.executables, 1);
  EXPECT_EQ(gone.loaded, 1);
  EXPECT_EQ(gone.errors, made.errors);
}

TEST(PjrtCall, AMissingEntryIsNamed) {
  PJRT_Api api = counting_table();
  const Event event(&api, some_handle<PJRT_Event>());
  const auto null = error_of<Error>([&] { event.is_ready(); });
  EXPECT_EQ(null.code(), ErrorCode::unimplemented);
  EXPECT_TRUE(contains(null.what(), "PJRT_Event_IsReady")) << null.what();
  api.struct_size = offsetof(
      PJRT_Api, PJRT_Event_Await);  // an older plug-in: what lies beyond is not ours to read
  const auto beyond = error_of<Error>([&] { event.await(); });
  EXPECT_EQ(beyond.code(), ErrorCode::unimplemented);
  EXPECT_TRUE(contains(beyond.what(), "PJRT_Event_Await")) << beyond.what();
}

TEST(PjrtKeyValues, WhateverTheStoreThrowsIsAnErrorOfXlas) {
  KeyValues store;
  const KeyValueScope scope(store);
  auto create = make_args<PJRT_Client_Create_Args>();
  give_key_values(create);
  PJRT_CallbackError make_error = [](PJRT_Error_Code code, const char* text, std::size_t size) {
    return new PJRT_Error{std::string(text, size), code};
  };
  auto args = make_args<PJRT_KeyValuePutCallback_Args>();
  args.key = args.value = "here";
  args.key_size = args.value_size = 4;
  args.callback_error = &make_error;
  args.user_arg = create.kv_put_user_arg;
  const auto answer = [&](auto put) {
    store.put = put;
    return std::unique_ptr<PJRT_Error>(create.kv_put_callback(&args));
  };
  EXPECT_EQ(answer([](const std::string& key, const std::string&) { EXPECT_EQ(key, "here"); }),
            nullptr);
  const auto error =
      answer([](const auto&, const auto&) { throw Error(ErrorCode::aborted, "no"); });
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code, PJRT_Error_Code_ABORTED);
  EXPECT_EQ(error->text, "no");
  const auto standard = answer([](const auto&, const auto&) { throw std::length_error("long"); });
  ASSERT_NE(standard, nullptr);
  EXPECT_EQ(standard->code, PJRT_Error_Code_INTERNAL);
  EXPECT_EQ(standard->text, "long");
  const auto other = answer([](const auto&, const auto&) { throw 7; });
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(other->code, PJRT_Error_Code_INTERNAL);
  EXPECT_EQ(other->text, "it threw what is no std::exception");
}

}  // namespace
}  // namespace postern::internal::pjrt
