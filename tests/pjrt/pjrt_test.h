// What the tests of the PJRT boundary share: one client, a few handlers and programs.
#pragma once
#include "pjrt/client.h"
#include "platform/cpu/cpu.h"

#include <gtest/gtest.h>

#include <atomic>

namespace postern::internal::pjrt {

using Dims = std::vector<std::int64_t>;

const Plugin& plugin();

/// Four devices for all tests.
const Client& client();

/// Handlers, as targets of custom calls: pjrt_test_add_offset (result = operand + the run's
/// Probe::offset + the attribute `id`), pjrt_test_refuse (out_of_range, "the bridge is out"),
/// pjrt_test_sleep (200 ms).
void register_handlers();
Handler refuse, sleep;

struct Probe {
  float offset = 0;
  std::atomic<int> calls{0};
  std::atomic<std::int64_t> run{0};  // the id of the last one
};
std::int64_t probe_type();
/// A probe and a context that holds it, of the plug-in that the tests share.
struct Probed {
  Probed() { context.add(probe_type(), &probe); }
  Probe probe;
  ExecuteContext context{plugin()};
};

/// a, b: tensor<4xf32> -> a + b
extern const std::string_view add_text;
/// Calls pjrt_test_add_offset with id = 100 on a tensor<4xf32>.
extern const std::string_view offset_text;
/// Calls a target without operands; cheap, so XLA runs it on the thread that executes.
std::string call_text(const std::string& target);
/// The same between enough arithmetic on a tensor<65536xf32> for XLA to run it on a thread of its
/// pool.
std::string heavy_text(const std::string& target);
Buffer heavy_input();

Buffer to_device(const std::vector<float>& values, const Dims& dims,
                 const Device& device = client().devices()[0]);
std::vector<float> to_host(const Buffer& buffer);
inline const std::vector<float> one_to_four = {1, 2, 3, 4};

/// Runs a program with one result.
Buffer run(const Executable& executable, const std::vector<const Buffer*>& arguments,
           const Launch& launch = {});

/// The exception that `act` throws, which must be of this type.
template <class Exception, class Act>
Exception error_of(Act act) {
  try {
    act();
  } catch (const Exception& error) {
    return error;
  }
  ADD_FAILURE() << "threw nothing";
  return Exception(ErrorCode::ok, "");
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace postern::internal::pjrt
