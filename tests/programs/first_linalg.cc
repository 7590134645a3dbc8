// Linear algebra in a process that has not used any: what is opened when, and what is said where it
// can't be.
#include <postern/postern.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace pn = postern;

namespace {

pn::Tensor matrix() { return pn::tensor<float>({{4, 2}, {2, 5}}); }

void show(const char* when) {
  std::ifstream maps("/proc/self/maps");
  bool there = false;
  for (std::string line; std::getline(maps, line);)
    there = there || line.find("openblas") != std::string::npos;
  std::printf("%s: %zu libraries, OpenBLAS is %s\n", when, pn::loaded_libraries().size(),
              there ? "there" : "not there");
}

void attempt(const char* what, const std::function<void()>& act) {
  try {
    act();
    std::printf("%s: done\n", what);
  } catch (const pn::Error& e) {
    std::printf("%s: %s: %s\n", what, pn::to_string(e.code()), e.what());
  }
}

const char* const foreign =
    "func.func @main(%a: tensor<2x2xf32>) -> (tensor<2x2xf32>) {\n"
    "  %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%a) {api_version = 4 : i32, backend_config "
    "= {uplo = 76 : ui8}} : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<i32>)\n"
    "  return %0#0 : tensor<2x2xf32>\n}";

void run_foreign() { pn::load_text(foreign).run({matrix()}).at(0).block_until_ready(); }

/// Takes triangular_solve of a matrix of two rows to itself.
pn::OverrideHandle override_triangular() {
  return pn::override_block<pn::linalg::Triangular>(
      {.program = [](const pn::linalg::Triangular&, std::span<const pn::Tensor> x) {
        return std::vector<pn::Tensor>{x[1] * 0.0f + 7.0f};
      }});
}

void show_solved() {
  std::printf(
      "solved: %s\n",
      pn::to_string(pn::linalg::triangular_solve(matrix(), pn::tensor<float>({{1}, {1}}))).c_str());
}

void opens() {
  pn::cumsum(matrix(), 0).block_until_ready();
  const pn::OverrideHandle kept = pn::keep_default<pn::linalg::Cholesky>();
  override_triangular();
  pn::linalg::cholesky(matrix()).block_until_ready();
  show_solved();
  show("before");
  kept.remove();
  pn::linalg::cholesky(matrix()).block_until_ready();
  show("after");
  show_solved();  // an override that was there before is still the later one
  pn::register_ffi_handler("lapack_spotrf_ffi",
                           [](XLA_FFI_CallFrame*) -> XLA_FFI_Error* { return nullptr; });
  for (const std::string& name : pn::ffi_handlers()) std::printf("handler: %s\n", name.c_str());
}

void missing() {
  for (int i = 0; i < 2; ++i)
    attempt("cholesky", [] { pn::linalg::cholesky(matrix()).block_until_ready(); });
  attempt("eigvals", [] { pn::linalg::eigvals(matrix()).block_until_ready(); });
  attempt("foreign", run_foreign);
  auto f = pn::jit([](pn::Tensor a) { return pn::linalg::cholesky(a); });
  const std::string text = f.program(matrix()).text();
  std::printf("printed: %s\n",
              text.find("kernels that are missing on cpu") != text.npos ? "said" : "hidden");
  const pn::OverrideHandle kept = pn::keep_default<pn::linalg::Cholesky>();
  attempt("default", [] { pn::linalg::cholesky(matrix()).block_until_ready(); });
  kept.remove();
  ::unsetenv("POSTERN_LAPACK");
  attempt("again", [] { pn::linalg::cholesky(matrix()).block_until_ready(); });
  attempt("foreign again", run_foreign);
}

void threads() {
  std::vector<std::vector<float>> found(8);
  std::vector<std::thread> all;
  for (auto& one : found)
    all.emplace_back([&one] { one = pn::linalg::cholesky(matrix()).to_vector<float>(); });
  for (std::thread& t : all) t.join();
  bool alike = true;
  for (const auto& one : found) alike = alike && one == found[0] && one[0] == 2;
  std::printf("%s, %zu libraries\n", alike ? "alike" : "different", pn::loaded_libraries().size());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argv[1];
  if (mode == "opens") opens();
  if (mode == "missing") missing();
  if (mode == "threads") threads();
  if (mode == "load" && argc > 2) {
    const pn::LibraryInfo info = pn::load_library(argv[2]);
    std::printf("%s: %zu overrides, %zu handlers\n", info.name.c_str(), info.overrides,
                info.handlers.size());
    attempt("foreign", run_foreign);
    show("loaded");
  }
}
