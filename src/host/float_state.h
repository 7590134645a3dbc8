// FloatState: how a thread's arithmetic rounds, and whether it keeps subnormal numbers.
#pragma once
#include <cstdint>

namespace postern::internal::host {

/// The control registers of a thread; what has been flagged so far is left out. XLA rounds to
/// nearest and flushes subnormal numbers, on its threads and on those that it computes on. A host
/// function is entered in the state of the thread that asked for its run.
struct FloatState {
#if defined(__x86_64__)
  static FloatState now() {
    constexpr std::uint32_t flags = 0x3f;
    FloatState out;
    asm volatile("stmxcsr %0" : "=m"(out.sse));
    asm volatile("fnstcw %0" : "=m"(out.x87));
    out.sse &= ~flags;
    return out;
  }
  void set() const {
    asm volatile("ldmxcsr %0" : : "m"(sse) : "memory");
    asm volatile("fldcw %0" : : "m"(x87) : "memory");
  }
  std::uint32_t sse = 0x1f80;
  std::uint16_t x87 = 0x37f;
#elif defined(__aarch64__)
  static FloatState now() {
    FloatState out;
    asm volatile("mrs %0, fpcr" : "=r"(out.fpcr));
    return out;
  }
  void set() const { asm volatile("msr fpcr, %0" : : "r"(fpcr) : "memory"); }
  std::uint64_t fpcr = 0;
#endif
};

/// Computes in one state, and then in the one before. To read that takes 15 ns, which who knows it
/// saves.
class FloatScope {
 public:
  explicit FloatScope(const FloatState& inside, const FloatState& before = FloatState::now())
      : before_(before) {
    inside.set();
  }
  ~FloatScope() { before_.set(); }
  FloatScope(const FloatScope&) = delete;

 private:
  const FloatState before_;
};

}  // namespace postern::internal::host
