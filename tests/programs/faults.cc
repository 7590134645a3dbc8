// Injects faults through the public interface: faults COUNT FOLDER [COMMAND]. Each kind COUNT
// times: every one must end as the error that it should be, with the next run sound. Prints for
// each kind the greatest time to the error and the memory before and after; exit code 1 where an
// error was another or a run was wrong. COMMAND is the path of `postern`.
#include <fcntl.h>
#include <postern/postern.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "resident.h"

extern char** environ;

namespace pn = postern;
using namespace std::chrono_literals;
using Code = pn::ErrorCode;
using Clock = std::chrono::steady_clock;

namespace {

std::mt19937_64 random_bits(26);

/// One kind: `inject` returns whether what came was as it should be.
struct Kind {
  const char* name;
  std::function<bool(int)> inject;
};

/// Whether it throws this code within itself.
template <class Act>
bool ends_as(Code code, Act act) {
  try {
    act();
  } catch (const pn::Error& e) {
    if (e.code() == code) return true;
    std::printf("  %s in place of %s: %.200s\n", pn::to_string(e.code()), pn::to_string(code),
                e.what());
    return false;
  }
  std::printf("  no error in place of %s\n", pn::to_string(code));
  return false;
}

template <class F>
std::function<bool(int)> run_of(Code code, F function, pn::CallOptions options = {}) {
  const auto f = pn::jit(
      [=](pn::Tensor x) { return pn::call(options, pn::type<float>({4}), function, x * 2.0f); });
  return [=](int) {
    return ends_as(code, [&] { f(pn::ones(pn::type<float>({4}))).block_until_ready(); });
  };
}

using In = pn::View<const float>;
using Out = pn::View<float>;

std::function<bool(int)> cancelled() {
  struct Gate {
    std::atomic<int> entered{0};
  };
  const auto gate = std::make_shared<Gate>();
  const auto f = pn::jit([gate](pn::Tensor x) {
    return pn::call(
        x.type(),
        [gate](const pn::CallInfo& info, In, Out) {
          ++gate->entered;
          while (!info.stop.stop_requested()) std::this_thread::sleep_for(100us);
        },
        x);
  });
  return [=](int) {
    const int before = gate->entered;
    const auto run = f.start(pn::ones(pn::type<float>({4})));
    while (gate->entered == before) std::this_thread::sleep_for(100us);
    run.cancel();
    return ends_as(Code::cancelled, [&] { run.result(); });
  };
}

std::function<bool(int)> late_run() {
  const auto f = pn::jit([](pn::Tensor x) {
    return pn::call(
        x.type(),
        [](const pn::CallInfo& info, In, Out) {
          while (!info.stop.stop_requested()) std::this_thread::sleep_for(100us);
        },
        x);
  });
  return [=](int) {
    const auto run = f.start_with({.deadline = 30ms}, pn::ones(pn::type<float>({4})));
    return ends_as(Code::timeout, [&] { run.result(); });
  };
}

std::function<bool(int)> failing_tap() {
  const auto f = pn::jit([](pn::Tensor x) {
    return pn::tap({.name = "seen", .mode = pn::TapMode::async}, x,
                   [](In) { throw std::runtime_error("tap"); });
  });
  return [=](int) {
    f(pn::ones(pn::type<float>({4}))).block_until_ready();
    return ends_as(Code::threw, [] { pn::barrier(); });
  };
}

/// Any byte of a saved program as any other: it is refused, or a program still.
std::function<bool(int)> mutated() {
  pn::register_function("faults.f", [](In in, Out out) {
    for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i];
  });
  const std::string good = pn::saved_text(pn::jit([](pn::Tensor x) {
                                            return pn::call(x.type(), pn::Named{"faults.f"}, x);
                                          }).lower(pn::ones(pn::type<float>({4}))));
  return [=](int i) {
    std::string text = good;
    for (int n = i % 4; n >= 0; --n)
      text[random_bits() % text.size()] = static_cast<char>(random_bits());
    if (i % 5 == 0) text.resize(random_bits() % text.size());
    try {
      pn::load_text(text);
    } catch (const pn::Error&) {
    }
    return true;
  };
}

/// What the command says no to, with words; 1, 2 or 3.
std::function<bool(int)> bad_commands(const std::string& command, const std::string& folder) {
  pn::save(folder + "/program.mlir",
           pn::jit([](pn::Tensor x) { return x + 1.0f; }).lower(pn::ones(pn::type<float>({4}))));
  return [=](int i) {
    const std::string file = folder + "/bad.npy", program = folder + "/program.mlir";
    std::string bytes(
        "\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", 67);
    for (int n = 0; n < 3; ++n)
      bytes[random_bits() % bytes.size()] = static_cast<char>(random_bits());
    std::ofstream(file, std::ios::binary) << bytes;
    std::string number = "[1, 2, 3, 4";  // not closed
    number += static_cast<char>('!' + random_bits() % 60);
    const std::vector<std::vector<std::string>> all{
        {"run", program, file},
        {"run", program, number},
        {"run", program, std::string(1 + random_bits() % 5000, '[')},
        {"run", program},
        {"run", file, "1"},
        {"run", program, "[1,2,3,4]", "--set", "speed=9"},
        {"run", program, "[1,2,3,4]", "--out", "/proc/nowhere"},
        {"show", file}};
    std::vector<std::string> words = all[static_cast<std::size_t>(i) % all.size()];
    words.insert(words.begin(), command);
    std::vector<char*> arguments;
    for (std::string& w : words) arguments.push_back(w.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    for (const int to : {1, 2})
      posix_spawn_file_actions_addopen(&files, to, "/dev/null", O_WRONLY, 0);
    pid_t process = 0;
    const int started =
        posix_spawn(&process, command.c_str(), &files, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    int status = 0;
    if (started != 0 || waitpid(process, &status, 0) != process) return false;
    if (WIFEXITED(status) && WEXITSTATUS(status) >= 1 && WEXITSTATUS(status) <= 3) return true;
    std::printf("  status %d of command %d\n", status, i);
    return false;
  };
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  const int times = std::atoi(arguments[1]);
  std::vector<Kind> kinds{
      {"throws", run_of(Code::threw, [](In, Out) { throw std::runtime_error("no"); })},
      {"throws what is no exception", run_of(Code::threw, [](In, Out) { throw 7; })},
      {"returns a wrong shape", run_of(Code::bad_result,
                                       [](In) {
                                         return std::vector<float>{1, 2};
                                       })},
      {"returns a wrong dtype",
       run_of(Code::bad_result, [](In) { return pn::ones(pn::type<double>({4})); })},
      {"times out", run_of(Code::timeout,
                           [](const pn::CallInfo& info, In, Out) {
                             while (!info.stop.stop_requested()) std::this_thread::sleep_for(100us);
                           },
                           {.timeout = 1ms})},
      {"waits for all runs", run_of(Code::reentry, [](In, Out) { pn::barrier(); })},
      {"is cancelled", cancelled()},
      {"has a deadline", late_run()},
      {"a tap throws", failing_tap()},
      {"a loaded text is mutated", mutated()},
      {"a name is not registered",
       [f = pn::jit(
            [](pn::Tensor x) { return pn::call(x.type(), pn::Named{"faults.nobody"}, x); })](int) {
         return ends_as(Code::unregistered,
                        [&] { f(pn::ones(pn::type<float>({4}))).block_until_ready(); });
       }},
  };
  if (count > 3)
    kinds.push_back({"the command is given nonsense", bad_commands(arguments[3], arguments[2])});
  const auto sound = pn::jit([](pn::Tensor x) {
    return pn::call(
        x.type(),
        [](In in, Out out) {
          for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] + 1;
        },
        x);
  });
  bool well = true;
  std::printf("%-32s %6s %8s %22s\n", "fault", "times", "ms", "MiB before and after");
  for (const Kind& kind : kinds) {
    double greatest = 0;
    long before = 0;
    bool as_told = true;
    for (int i = 0; i < times; ++i) {
      const int warm = times / 10;  // pools, threads and compiled programs are there by then
      if (i == warm) before = pn::test::resident_kib();
      const auto start = Clock::now();
      as_told = kind.inject(i) && as_told;
      const double took = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
      if (i >= 1) greatest = std::max(greatest, took);  // the first compiles
      as_told =
          sound(pn::ones(pn::type<float>({4}))).to_vector<float>() == std::vector<float>(4, 2) &&
          as_told;
    }
    const long after = pn::test::resident_kib();
    std::printf("%-32s %6d %8.1f %10.1f %10.1f%s\n", kind.name, times, greatest,
                static_cast<double>(before) / 1024, static_cast<double>(after) / 1024,
                as_told ? "" : "  NOT AS TOLD");
    std::fflush(stdout);
    const bool grows = pn::test::counts_memory && after - before > 32 * 1024;
    well = well && as_told && greatest < 10'000 && !grows;
  }
  try {
    pn::barrier();
  } catch (const pn::Error& e) {
    std::printf("left over: %.200s\n", e.what());
    well = false;
  }
  return well ? 0 : 1;
}
