// Recording runs and replaying them without their host functions.
#include <unistd.h>

#include <cstring>

#include "core/digest.h"
#include "core/text.h"
#include "file/file_test.h"

namespace postern::test {
using namespace internal;
namespace {

using Floats = std::vector<float>;

class Record : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file); }
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("postern_record_" + std::to_string(getpid()));
  Tensor x = tensor<float>({1, 2, 3});
  int world = 0;  // what the functions below depend on

  Tensor asked(const Tensor& v, const CallOptions& options = {.name = "ask"}) {
    return call(
        options, v.type(),
        [this](View<const float> in, View<float> out) {
          ++world;
          for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] + static_cast<float>(world);
        },
        v);
  }
};

TEST_F(Record, AReplayGivesTheSameBytesWithoutTheFunctions) {
  const auto f = jit([&](Tensor v) {
    return fori_loop(
        0, 5,
        [&](Tensor, Tensor w) {
          return asked(tap({.name = "seen"}, w * 0.5f, [this](View<const float>) { ++world; }));
        },
        v);
  });
  Floats first, second;
  {
    const Taping recording = record(file);
    first = f(x).to_vector<float>();
    second = f(x).to_vector<float>();
  }
  const int then = world;
  EXPECT_NE(first, second);
  {
    Taping replaying = replay(file);
    EXPECT_EQ(f(x).to_vector<float>(), first);
    EXPECT_EQ(f(x).to_vector<float>(), second);
    EXPECT_THROW(f(x), Error);  // there is no third
  }
  EXPECT_EQ(world, then);
  EXPECT_NE(f(x).to_vector<float>(), first);
  const auto firings = read_recording(file);
  ASSERT_EQ(firings.size(), 20u);
  EXPECT_EQ(firings[0].kind + firings[0].name + firings[1].kind + firings[1].name,
            "tapseencallask");
  float shown = 0;
  std::memcpy(&shown, firings[0].values.at(0).data(), 4);
  EXPECT_EQ(shown, 0.5f);
  EXPECT_EQ(firings[10].run, 1u);
}

TEST_F(Record, TheFirstCallThatDiffersIsNamed) {
  const auto f = jit([&](Tensor v) { return asked(asked(v) * 2.0f, {.name = "again"}); });
  {
    const Taping recording = record(file);
    f(x).block_until_ready();
  }
  const Taping replaying = replay(file);
  try {
    f(tensor<float>({1, 2, 4})).block_until_ready();
    ADD_FAILURE() << "it ran";
  } catch (const CallbackError& e) {
    EXPECT_EQ(e.code(), ErrorCode::failed_precondition);
    EXPECT_NE(std::string(e.what()).find("call 'ask' at record_test.cc:"), std::string::npos)
        << e.what();
    EXPECT_NE(std::string(e.what()).find("call 0 of run 0 has other operands than were recorded"),
              std::string::npos)
        << e.what();
  }
}

TEST_F(Record, AnotherProgramIsRefused) {
  const auto f = jit([&](Tensor v) { return asked(v); });
  const auto g = jit([&](Tensor v) { return asked(v) + 1.0f; });
  {
    const Taping recording = record(file);
    f(x).block_until_ready();
  }
  const Taping replaying = replay(file);
  try {
    g(x);
    ADD_FAILURE() << "it ran";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::failed_precondition);
    EXPECT_NE(std::string(e.what()).find("run 0 of the recording is of another program"),
              std::string::npos)
        << e.what();
  }
  EXPECT_EQ(f(x).to_vector<float>(), (Floats{2, 3, 4}));  // the recording stands where it stood
}

TEST_F(Record, ElementsOfABatchKeepTheirOwn) {
  for (const VmapMethod method : {VmapMethod::sequential, VmapMethod::parallel}) {
    std::atomic<int> count = 0;
    const auto f = jit(vmap([&](Tensor v) {
      return call(
          {.name = "count", .vmap = method}, v.type(),
          [&](float) { return static_cast<float>(++count); }, v);
    }));
    Floats first;
    {
      const Taping recording = record(file);
      first = f(x).to_vector<float>();
    }
    const Taping replaying = replay(file);
    EXPECT_EQ(f(x).to_vector<float>(), first);
    EXPECT_EQ(count, 3);
  }
}

TEST_F(Record, FailuresAndEarlyEndsAreReplayed) {
  const auto fails = jit([&](Tensor v) {
    return call(
        {.name = "fails"}, v.type(),
        [&](View<const float>, View<float>) { throw std::runtime_error(std::to_string(++world)); },
        v);
  });
  const auto ends = jit([&](Tensor v) {
    return call(
        {.name = "ends"}, v.type(),
        [&](const CallInfo& info, View<const float>, View<float>) {
          info.end_run();
          ++world;
        },
        v);
  });
  auto text_of = [&](const auto& f) -> std::string {
    try {
      f(x).block_until_ready();
      return "";
    } catch (const CallbackError& e) {
      return e.what();
    }
  };
  std::string failure, end;
  {
    const Taping recording = record(file);
    failure = text_of(fails);
    end = text_of(ends);
  }
  EXPECT_NE(failure.find("device 0: 1"), std::string::npos) << failure;
  EXPECT_NE(end.find("ended early"), std::string::npos) << end;
  const Taping replaying = replay(file);
  EXPECT_EQ(text_of(fails), failure);
  EXPECT_EQ(text_of(ends), end);
  EXPECT_EQ(world, 2);
}

TEST_F(Record, StartedAndEvaluatedRunsAreTapedAndThoseOfFunctionsAreNot) {
  const auto inner = jit([&](Tensor v) { return asked(v, {.name = "inner"}); });
  const auto outer = jit([&](Tensor v) {
    return call(
        {.name = "outer"}, v.type(),
        [&](View<const float> in, View<float> out) {
          const Floats got = inner(Tensor(type<float>({3}), in.data())).to_vector<float>();
          std::copy(got.begin(), got.end(), out.begin());
        },
        v);
  });
  Floats started, evaluated;
  {
    const Taping recording = record(file);
    started = outer.start(x).result().to_vector<float>();
    evaluated = asked(x).to_vector<float>();
  }
  EXPECT_EQ(read_recording(file).size(), 2u);
  const Taping replaying = replay(file);
  EXPECT_EQ(outer.start(x).result().to_vector<float>(), started);
  EXPECT_EQ(asked(x).to_vector<float>(), evaluated);
  EXPECT_EQ(world, 2);
}

TEST_F(Record, NamedFunctionsNeedNotBeThere) {
  const auto f = jit([](Tensor v) { return call(v.type(), Named{"record_test.f"}, v); });
  register_function("record_test.f", [](View<const float> in, View<float> out) {
    out[0] = in[0] + 7;
    out[1] = out[2] = 0;
  });
  {
    const Taping recording = record(file);
    f(x).block_until_ready();
  }
  unregister_function("record_test.f");
  EXPECT_THROW(f(x), CallbackError);
  const Taping replaying = replay(file);
  EXPECT_EQ(f(x).to_vector<float>(), (Floats{8, 0, 0}));
}

TEST_F(Record, AFunctionThatThrowsAnEmptyTextReplays) {
  const auto f = jit([](Tensor v) {
    return call(
        {.name = "silent"}, v.type(),
        [](View<const float>, View<float>) { throw std::runtime_error(""); }, v);
  });
  std::string said;
  {
    const Taping recording = record(file);
    said = error_of<CallbackError>([&] { f(x).block_until_ready(); }).value().what();
  }
  EXPECT_TRUE(has(said, "an exception of type std::runtime_error without a text")) << said;
  ASSERT_EQ(read_recording(file).size(), 1u);
  const Taping replaying = replay(file);
  EXPECT_EQ(error_of<CallbackError>([&] { f(x).block_until_ready(); }).value().what(), said);
}

TEST_F(Record, NestedContentsAreRefused) {
  testing::FLAGS_gtest_death_test_style =
      "threadsafe";  // a stack that overflows takes its process along
  auto refused = [&](const std::string& body) {
    std::ofstream(file, std::ios::binary) << "postern recording 1\n"
                                          << digest(body) << '\n'
                                          << body;
    EXPECT_EXIT(
        {
          try {
            read_recording(file);
          } catch (const Error& e) {
            if (e.code() == ErrorCode::invalid_argument) std::_Exit(0);
          }
          std::_Exit(1);
        },
        testing::ExitedWithCode(0), "")
        << one_line(body.substr(0, 20));
  };
  const std::size_t many = 3'000'000;
  refused(std::string(many, '\x81'));                     // lists of one
  refused(std::string(many, '\x9f'));                     // of unknown length
  refused(std::string(many, '\x5f'));                     // bytes in pieces
  refused(std::string(many, '\x7f'));                     // text in pieces
  refused(std::string(many, '\xc1'));                     // tags
  refused("\xa1" + std::string(many, '\x81'));            // a map's key
  refused(std::string("\x9b") + std::string(8, '\xff'));  // as many elements as 64 bits count
  refused("");
  refused("\x80\x80");  // more than one
}

TEST_F(Record, ValuesWithoutTypesAreRefused) {
  // [[0, 0, "call", "c", 0, -1, "d", [], [4 bytes], "it failed", false]]
  const std::string body(
      "\xa2\x68programs\x81\x61x\x67"
      "firings\x81\x8b\x00\x00\x64"
      "call\x61"
      "c\x00\x20\x61"
      "d\x80\x81\x44"
      "abcd\x69it failed\xf4",
      54);
  put(file, "postern recording 1\n" + digest(body) + "\n" + body);
  expect_error<Error>([&] { read_recording(file); }, {"'c'", "not of their types"},
                      ErrorCode::invalid_argument);
}

TEST_F(Record, WhatIsWrongIsSaid) {
  auto code_of = [&](const std::filesystem::path& path) {
    try {
      static_cast<void>(replay(path));
      return ErrorCode::ok;
    } catch (const Error& e) {
      return e.code();
    }
  };
  EXPECT_EQ(code_of("/no/such/file"), ErrorCode::not_found);
  std::ofstream(file) << "text";
  EXPECT_EQ(code_of(file), ErrorCode::invalid_argument);
  const auto f = jit([&](Tensor v) { return asked(v); });
  {
    const Taping recording = record(file);
    f(x).block_until_ready();
    try {
      static_cast<void>(record(file));
      ADD_FAILURE() << "a recording within one";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::failed_precondition);
    }
  }
  const std::string text = contents(file);
  put(file, text.substr(0, text.size() - 3));
  EXPECT_EQ(code_of(file), ErrorCode::data_loss);
  put(file, text.substr(0, 25));
  EXPECT_EQ(code_of(file), ErrorCode::data_loss);
  Taping nowhere = record("/no/such/folder/file");
  EXPECT_THROW(nowhere.close(), Error);
  nowhere.close();
}

}  // namespace
}  // namespace postern::test
