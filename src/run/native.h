// A compiled program that runs on the caller's memory, as Native holds it.
#pragma once
#include <array>
#include <atomic>

#include "run/compiled.h"
#include "run/staging.h"

namespace postern::detail {

class NativeProgram {
 public:
  /// Throws Error(unimplemented) for a program over several devices or processes.
  NativeProgram(std::shared_ptr<const internal::run::CompiledProgram> program,
                std::vector<Type> inputs);
  ~NativeProgram();
  NativeProgram(const NativeProgram&) = delete;

  void run(const void* const* in, void* const* out) const;

  const std::vector<Type> inputs, outputs;

 private:
  using Arguments = internal::run::ArgumentsInPlace;
  std::unique_ptr<Arguments> take() const;
  void give_back(std::unique_ptr<Arguments> arguments) const;
  void run_by_tensors(const void* const* in, void* const* out) const;

  std::shared_ptr<const internal::run::CompiledProgram> program_;
  /// Of calls that are over: each thread looks first where it left its own.
  static constexpr std::size_t kept = 16;
  mutable std::array<std::atomic<Arguments*>, kept> idle_ = {};
};

}  // namespace postern::detail
