// What tests share: the error that something throws, waiting for a condition, and programs run as
// processes of their own.
#pragma once
#include <gtest/gtest.h>
#include <postern/postern.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace postern::test {

using namespace std::chrono_literals;

/// Modes in which programs with calls run: Mode::compiled, the first, where the plug-in calls back.
template <std::size_t N>
struct Modes {
  Mode list[N];
  const Mode* begin() const { return list + (plugin_info().calls_back ? 0 : 1); }
  const Mode* end() const { return list + N; }
};
inline constexpr Modes<2> both_modes{{Mode::compiled, Mode::evaluate}};
inline constexpr Modes<3> all_modes{{Mode::compiled, Mode::staged, Mode::evaluate}};

/// Whether this test, which needs that a compiled program can enter functions, ends here because
/// the plug-in's cannot (`./test --staged`): it is skipped then, and says why it needs that.
bool skipped_in_stages(std::string_view why);

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Returns the step through the cases of a sweep: ./test --all takes all of them.
std::size_t stride(std::size_t usual);

/// The exception that `act` throws, which must be exactly of this type.
template <class Exception, class Act>
std::optional<Exception> error_of(Act&& act) {
  try {
    act();
    ADD_FAILURE() << "threw nothing";
  } catch (const Exception& e) {
    EXPECT_EQ(typeid(e), typeid(Exception)) << e.what();
    return e;
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw another type: " << typeid(e).name() << ": " << e.what();
  } catch (...) {
    ADD_FAILURE() << "threw something else";
  }
  return {};
}

/// `act` must throw an Exception whose text has all these parts.
template <class Exception, class Act>
void expect_error(Act&& act, std::initializer_list<std::string_view> parts,
                  std::optional<ErrorCode> code = {}) {
  const auto e = error_of<Exception>(act);
  if (!e) return;
  for (const std::string_view part : parts)
    EXPECT_TRUE(has(e->what(), part)) << "no '" << part << "' in: " << e->what();
  if constexpr (std::is_base_of_v<Error, Exception>)
    if (code) {
      EXPECT_EQ(e->code(), *code) << to_string(e->code()) << ": " << e->what();
    }
}

/// The original exception of a CallbackError, if it is a T.
template <class T>
std::optional<T> cause_of(const CallbackError& e) {
  try {
    if (e.cause()) std::rethrow_exception(e.cause());
  } catch (const T& cause) {
    return cause;
  } catch (...) {
  }
  return {};
}

/// Whether the condition came true within the (generous) limit.
template <class Condition>
bool wait_until(Condition condition, std::chrono::milliseconds limit = 20s) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// x + 1, f32, by a host function.
inline Tensor host_plus_one(const Tensor& x, CallOptions options = {}) {
  return call(
      options, x.type(),
      [](View<const float> in, View<float> out) {
        for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] + 1;
      },
      x);
}

/// How a program ended: its exit code, or 1000 + signal, or -1 when it was killed after the limit;
/// what it wrote; how long it took.
struct Ended {
  int code = -1;
  std::string out, err;
  double seconds = 0;
};

/// Runs `programs/<name>` (POSTERN_TEST_PROGRAMS) with arguments; `environment` is set on top of
/// ours ("" removes).
Ended run_program(const std::string& name, const std::vector<std::string>& arguments = {},
                  const std::map<std::string, std::string>& environment = {},
                  std::chrono::seconds limit = 100s);

/// An empty folder that is removed with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace postern::test
