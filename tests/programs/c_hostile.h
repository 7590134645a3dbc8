// What c_hostile sweeps with: values for parameters, good and bad, places for what entries make,
// and whether the library is well afterwards.
#pragma once
#include <dlpack/dlpack.h>
#include <postern/guest.h>

#include <array>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace hostile {

/// Shared with the process that sweeps: what it is at.
struct Progress {
  std::size_t calls, wrong;
  char text[512];
};
inline Progress* progress;

inline std::string described(const char* text) {
  return text ? "\"" + std::string(text).substr(0, 12) + "\"" : "NULL";
}
template <class T>
std::string described(T value) {
  if constexpr (std::is_pointer_v<T>)
    return value ? "there" : "NULL";
  else
    return std::to_string(value);
}

inline void wrong(const std::string& why) {
  ++progress->wrong;
  std::printf("%s: %s\n", progress->text, why.c_str());
  std::fflush(stdout);
}

// --- values ---

inline const char* const module_text =
    "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
    "  %0 = stablehlo.custom_call @hostile.f(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %0 : "
    "tensor<4xf32> }\n";
alignas(64) inline float numbers[4] = {1, 2, 3, 4};
inline const std::int64_t four[] = {4}, negative[] = {-4}, huge[] = {INT64_MAX},
                          wraps[] = {std::int64_t{1} << 62, 4},
                          to_zero[] = {std::int64_t{1} << 32, std::int64_t{1} << 32},
                          zeros[] = {0, INT64_MAX, INT64_MAX};
inline const std::string long_text(1 << 20, 'x');

/// Operands to results, as the functions of the module do.
inline int plus_one(void*, const pn_firing* f) {
  for (std::size_t i = 0; i < 4; ++i)
    static_cast<float*>(f->results[0].data)[i] =
        static_cast<const float*>(f->operands[0].data)[i] + 1;
  return PN_OK;
}
inline void nothing(void*) {}

inline const std::vector<const char*> texts{
    nullptr, "", "hostile.g", "\xff\xfe%s%n", long_text.c_str(), module_text};
inline const std::vector<int> ints{INT_MIN, -1, 0, 1, 12345, INT_MAX};
inline const std::vector<std::int64_t> limits{INT64_MIN, -1, 0, 1, INT64_MAX};
inline const std::vector<std::size_t> sizes{0, 1, 2, SIZE_MAX / 2, SIZE_MAX};
inline const std::vector<void*> users{nullptr, numbers};
using Release = void (*)(void*);
inline const std::vector<Release> releases{nullptr, nothing};

inline const std::vector<const pn_array*>& arrays() {
  static const pn_array list[] = {
      {PN_F32, 1, four, numbers, 16},
      {-1, 1, four, numbers, 16},
      {PN_F4E2M1FN + 1, 1, four, numbers, 16},
      {INT_MIN, 1, four, numbers, 16},
      {INT_MAX, 1, four, numbers, 16},
      {PN_F32, -1, four, numbers, 16},
      {PN_F32, INT_MAX, four, numbers, 16},
      {PN_F32, 65, four, numbers, 16},
      {PN_F32, 1, nullptr, numbers, 16},
      {PN_F32, 1, four, nullptr, 16},
      {PN_F32, 1, four, numbers, 0},
      {PN_F32, 1, four, numbers, SIZE_MAX},
      {PN_F32, 1, negative, numbers, 16},
      {PN_F32, 1, huge, numbers, SIZE_MAX},
      {PN_F64, 1, huge, numbers, static_cast<std::size_t>(INT64_MAX) * 8},
      {PN_F32, 2, wraps, numbers, 0},
      {PN_C128, 2, to_zero, numbers, 0},
      {PN_F32, 3, zeros, nullptr, 0},
      {PN_F32, 0, nullptr, numbers, 4}};
  static const std::vector<const pn_array*> out = [] {
    std::vector<const pn_array*> v{nullptr};
    for (const pn_array& a : list) v.push_back(&a);
    return v;
  }();
  return out;
}

// --- places for what is made, and its end ---

template <class T>
std::array<T, 4> slots;  // as many as any entry fills
template <class T>
std::vector<T*> places() {
  return {nullptr, slots<T>.data()};
}
template <class T, class Free>
void clear(Free free) {
  for (T& slot : slots<T>)
    if (slot) free(std::exchange(slot, nullptr));
}
inline void clear_all() {
  clear<pn_tensor*>(pn_tensor_free);
  clear<pn_program*>(pn_program_free);
  clear<pn_started*>(pn_started_free);
  clear<pn_native*>(pn_native_free);
  clear<pn_bridge*>(pn_bridge_free);
  clear<DLManagedTensor*>([](DLManagedTensor* m) { m->deleter(m); });
}

template <class T, class Make>
T must(Make make, const char* what) {
  T made{};
  if (make(&made) != PN_OK) {
    wrong(std::string(what) + ": " + pn_last_error());
    std::_Exit(3);
  }
  return made;
}
inline pn_tensor* tensor() {
  return must<pn_tensor*>([](pn_tensor** t) { return pn_tensor_copy(arrays()[1], t); }, "a tensor");
}
inline pn_program* program() {
  return must<pn_program*>(
      [](pn_program** p) { return pn_load_text(module_text, std::strlen(module_text), p); },
      "a program");
}
inline pn_native* native() {
  return must<pn_native*>([](pn_native** n) { return pn_native_of(program(), nullptr, n); },
                          "a native function");
}
inline pn_bridge* bridge() { return must<pn_bridge*>(pn_bridge_create, "a bridge"); }
inline void serve() {
  if (pn_register("hostile.f", plus_one, nullptr, nullptr, 1) != PN_OK)
    wrong("the module's function was refused");
}
inline pn_started* started() {
  serve();
  const pn_tensor* const x = tensor();
  return must<pn_started*>([&](pn_started** s) { return pn_start(program(), &x, 1, s); }, "a run");
}

inline bool known(int code) {
  return (code >= 0 && code <= 16) || (code >= PN_THREW && code <= PN_UNREGISTERED) ||
         code == PN_EMPTY;
}

/// Whether the library still does what it should.
inline void check_health() {
  serve();
  const pn_tensor* const x = tensor();
  pn_tensor* y = nullptr;
  pn_array view{};
  if (pn_run(program(), &x, 1, &y) != PN_OK || pn_tensor_view(y, &view) != PN_OK ||
      static_cast<const float*>(view.data)[3] != 5)
    wrong(std::string("afterwards a run failed: ") + pn_last_error());
}

}  // namespace hostile
