// Programs from elsewhere that would end the process inside XLA: each is refused with words, or
// runs.
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <sstream>

#include "support.h"

namespace postern::test {
namespace {

const std::string folder = POSTERN_TEST_DATA "/stablehlo/";

/// How many ended in which way: by what run_damaged says of them, "died", and "endless".
using Endings = std::map<std::string, int>;

/// Flips every `step`th bit of a file, in processes that may die; those after a death begin behind
/// it.
Endings flip_bits(const std::string& file, std::size_t step) {
  const std::size_t bits = 8 * std::filesystem::file_size(folder + file);
  Endings out;
  for (std::size_t next = step / 2; next < bits;) {
    const Ended ended = run_program("run_damaged",
                                    {folder + file, std::to_string(next), std::to_string(step),
                                     std::to_string((bits - next + step - 1) / step)},
                                    {}, 3600s);
    std::istringstream lines(ended.out);
    std::size_t bit = 0;
    std::string line, ending;
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      ending.clear();
      words >> bit >> ending;
      if (!ending.empty()) ++out[ending];
    }
    if (ended.code == 0) break;
    const bool endless = ended.code == 1000 + SIGALRM;
    ++out[endless ? "endless" : "died"];
    EXPECT_TRUE(endless) << file << ": bit " << bit << " ended the process with " << ended.code
                         << "\n"
                         << ended.err.substr(0, 1000);
    if (!ending.empty() || ended.out.empty()) break;  // not while it was at a bit
    next = bit + step;
  }
  return out;
}

TEST(ForeignDamage, FlippedBitsNeverEndTheProcess) {
  // All of them take a quarter of an hour; a flipped bit can make a loop that never ends.
  const bool all = std::getenv("POSTERN_SWEEP") != nullptr;
  Endings total;
  for (const char* file : {"portable.mlirbc", "windows.jax", "indices.jax", "dtypes.jax",
                           "network.jax", "loop.jax", "control.jax"}) {
    const bool loops =
        std::string_view(file) == "loop.jax" || std::string_view(file) == "control.jax";
    if (!all && loops) continue;
    const Endings endings = flip_bits(file, all ? 1 : 701);
    std::string text;
    for (const auto& [ending, count] : endings) {
      total[ending] += count;
      text += fmt::format(" {} {}", count, ending);
    }
    if (all) fmt::print("{}:{}\n", file, text);
  }
  EXPECT_GT(total["ran"], 20);
  EXPECT_GT(total["refused"], 20);
  EXPECT_EQ(total["died"], 0);
}

/// The module's body as a program of one argument.
std::string module(const std::string& body, const std::string& result = "tensor<4xf32>") {
  return fmt::format("func.func @main(%a: tensor<4xf32>) -> {} {{\n{}\n  return %0 : {}\n}}\n",
                     result, body, result);
}

TEST(ForeignDamage, BracketsInBracketsWithoutEndAreRefused) {
  for (const char bracket : {'[', '{', '(', '<'})
    for (const bool closed : {false, true}) {
      std::string text(100000, bracket);
      if (closed)
        text += std::string(100000, bracket == '(' ? ')' : static_cast<char>(bracket + 2));
      expect_error<Error>(
          [&] {
            load_text(module("  %0 = stablehlo.add %a, %a {x = " + text + "} : tensor<4xf32>"),
                      "name");
          },
          {"load: name:2: brackets are nested more than 500 deep"});
    }
}

TEST(ForeignDamage, FunctionsThatCallThemselvesAreRefused) {
  auto function = [&](const std::string& name, const std::string& callee) {
    return fmt::format(
        "func.func private @{}(%a: tensor<4xf32>) -> tensor<4xf32> {{\n"
        "  %0 = func.call @{}(%a) : (tensor<4xf32>) -> tensor<4xf32>\n  return %0 : "
        "tensor<4xf32>\n}}\n",
        name, callee);
  };
  const std::string add =
      "func.func private @add(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
      "  %0 = stablehlo.add %a, %a : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n";
  auto main = [](const std::string& callee) {
    return module("  %0 = call @" + callee + "(%a) : (tensor<4xf32>) -> tensor<4xf32>");
  };
  for (const std::string& text : {main("main"), main("f") + function("f", "f"),
                                  main("f") + function("f", "g") + function("g", "\"f\""),
                                  main("add") + add + function("f", "f")})
    expect_error<Error>([&] { load_text(text, "name"); }, {"call themselves"});
  // MLIR's text may have spaces, ends of lines and comments anywhere, and names by their codes.
  auto as = [&](std::string_view written) {
    std::string out = main("f") + function("f", "f");
    constexpr std::string_view plain = "func.func private @f";
    return out.replace(out.find(plain), plain.size(), written);
  };
  for (const char* written :
       {"func.func nested @f", "func.func  @f", "func.func\tprivate\n  @f", "func.func @\"f\"",
        "func.func // the function @g\n@f", "func.func private @\"\\66\""}) {
    SCOPED_TRACE(written);
    expect_error<Error>([&] { load_text(as(written), "name"); }, {"call themselves"});
  }
  expect_error<Error>(
      [&] {
        load_text(main("f") + "\"func.func\"() ({\n}) {sym_name = \"f\"} : () -> ()\n", "name");
      },
      {"load: name:5: a function in MLIR's generic form cannot be read"});
  // What only looks so: names in texts and comments, and a function called twice.
  const Loaded twice =
      load_text("// func.func @main(%b) { @main @f\n" + main("f") + function("f", "add") + add);
  EXPECT_EQ(twice(ones({DType::f32, {4}})).at(0).to_vector<float>()[0], 2);
}

/// Functions in a row, of which each calls the next so often; the last doubles.
std::string calls_in_a_row(int functions, int times) {
  std::string out = module("  %0 = call @f0(%a) : (tensor<4xf32>) -> tensor<4xf32>");
  for (int i = 0; i < functions; ++i) {
    out += fmt::format("func.func private @f{}(%v0: tensor<4xf32>) -> tensor<4xf32> {{\n", i);
    int last = 1;
    if (i + 1 == functions)
      out += "  %v1 = stablehlo.add %v0, %v0 : tensor<4xf32>\n";
    else
      for (last = 0; last < times; ++last)
        out += fmt::format("  %v{} = call @f{}(%v{}) : (tensor<4xf32>) -> tensor<4xf32>\n",
                           last + 1, i + 1, last);
    out += fmt::format("  return %v{} : tensor<4xf32>\n}}\n", last);
  }
  return out;
}

TEST(ForeignDamage, CallsTooDeepOrTooManyAreRefused) {
  const auto refused = [](int functions, int times, std::string_view why) {
    expect_error<Error>([&] { load_text(calls_in_a_row(functions, times), "name"); },
                        {"load: name:1: ", why}, ErrorCode::resource_exhausted);
  };
  refused(10'000, 1, "calls of functions are more than 100 deep");
  refused(41, 2, "called more than 1000000 times");
  const Loaded eight = load_text(calls_in_a_row(4, 2));
  EXPECT_EQ(eight(ones({DType::f32, {4}})).at(0).to_vector<float>()[0], 256);
}

// XLA goes into functions that are called, and so does the interpreter.
TEST(ForeignDamage, CallsAsDeepAsMayBeNeedNoLargeStack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::size_t stack = std::size_t{4096} << 10;  // their frames are larger
#else
  constexpr std::size_t stack = std::size_t{512} << 10;
#endif
  std::vector<float> got;
  std::function<void()> act = [&] {
    try {
      const Loaded program = load_text(calls_in_a_row(99, 1));
      const Tensor x = ones({DType::f32, {4}});
      got.push_back(program(x).at(0).to_vector<float>()[0]);
      got.push_back(jit([&](Tensor v) { return program(v)[0]; })(x).to_vector<float>()[0]);
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, stack), 0);
  pthread_t thread{};
  const auto run = [](void* data) -> void* {
    (*static_cast<std::function<void()>*>(data))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &act), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(got, (std::vector<float>{2, 2}));
}

/// A flatbuffer, as jax.export's are. What a field or entry points to lies behind it, and may be
/// pointed to again.
class FlatBytes {
 public:
  FlatBytes() { put(0); }  // where the root is
  /// Adds a table with these fields, all 0.
  std::size_t table(const std::vector<int>& fields) {
    const std::size_t count = 1 + static_cast<std::size_t>(std::ranges::max(fields));
    const std::size_t list = bytes_.size(), at = list + 4 + 2 * count + 2 * (count % 2);
    std::vector<std::uint16_t> head(2 + count + count % 2);
    head[0] = static_cast<std::uint16_t>(4 + 2 * count);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const std::size_t offset = 4 + 4 * i;
      head[2 + static_cast<std::size_t>(fields[i])] = static_cast<std::uint16_t>(offset);
      places_[{at, fields[i]}] = at + offset;
    }
    bytes_.append(reinterpret_cast<const char*>(head.data()), 2 * head.size());
    put(static_cast<std::uint32_t>(at - list));
    for (std::size_t i = 0; i < fields.size(); ++i) put(0);
    return at;
  }
  /// Adds a list of as many entries, all 0.
  std::size_t list(std::size_t count) {
    const std::size_t at = put(static_cast<std::uint32_t>(count));
    bytes_.resize(bytes_.size() + 4 * count);
    return at;
  }
  std::size_t text(const std::string& text) {
    const std::size_t at = put(static_cast<std::uint32_t>(text.size()));
    bytes_ += text + std::string(4 - text.size() % 4, '\0');
    return at;
  }
  void set(std::size_t table, int field, std::uint32_t value) {
    write(places_.at({table, field}), value);
  }
  void point(std::size_t table, int field, std::size_t to) {
    const std::size_t from = places_.at({table, field});
    write(from, static_cast<std::uint32_t>(to - from));
  }
  void point_all(std::size_t list, std::size_t count, std::size_t to) {
    for (std::size_t from = list + 4; from < list + 4 + 4 * count; from += 4)
      write(from, static_cast<std::uint32_t>(to - from));
  }
  std::string with_root(std::size_t table) {
    write(0, static_cast<std::uint32_t>(table));
    return bytes_;
  }

 private:
  std::size_t put(std::uint32_t value) {
    bytes_.resize(bytes_.size() + 4);
    write(bytes_.size() - 4, value);
    return bytes_.size() - 4;
  }
  void write(std::size_t at, std::uint32_t value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  std::string bytes_;
  std::map<std::pair<std::size_t, int>, std::size_t> places_;  // by table and field
};

// Of a few thousand bytes, which would become any amount of memory and time.
TEST(ForeignDamage, ArtifactsWhosePartsAreSharedWithoutEndAreRefused) {
  enum { version, in_tree = 2, in_avals = 3, platforms = 9, module_bytes = 13, convention = 14 };
  const auto refused = [](int field, std::string_view why, ErrorCode code, const auto& fill) {
    FlatBytes bytes;
    const std::size_t root = bytes.table({version, convention, module_bytes, platforms, field});
    bytes.set(root, version, 2);
    bytes.set(root, convention, 9);
    bytes.point(root, module_bytes, bytes.text("ML\xefR"));
    if (field != platforms) {
      const std::size_t names = bytes.list(1);
      bytes.point(root, platforms, names);
      bytes.point_all(names, 1, bytes.text("cpu"));
    }
    fill(bytes, root);
    expect_error<Error>([&] { load_text(bytes.with_root(root), "shared.jax"); },
                        {"shared.jax", why}, code);
  };
  refused(in_tree, "too many nodes", ErrorCode::data_loss, [](FlatBytes& bytes, std::size_t root) {
    enum { kind, children };
    constexpr int none = 1, tuple = 2, levels = 60;
    std::size_t before = 0;
    for (int level = 0; level < levels; ++level) {  // two children each, which are one
      const std::size_t node = bytes.table({kind, children}), list = bytes.list(2);
      bytes.set(node, kind, level + 1 == levels ? none : tuple);
      bytes.point(node, children, list);
      if (level == 0)
        bytes.point(root, in_tree, node);
      else
        bytes.point_all(before, 2, node);
      before = list;
    }
    bytes.point_all(before, 2, bytes.table({kind}));
  });
  refused(platforms, "texts lie in each other", ErrorCode::data_loss,
          [](FlatBytes& bytes, std::size_t root) {
            constexpr std::size_t many = 1000;
            const std::size_t names = bytes.list(many);
            bytes.point(root, platforms, names);
            bytes.point_all(names, many, bytes.text(std::string(many, 'x')));
          });
  for (const std::string extent : {"1", "n"})
    refused(in_avals, "at most 64 axes", ErrorCode::invalid_argument,
            [&](FlatBytes& bytes, std::size_t root) {
              enum { shape = 1, dtype = 2 };
              constexpr std::size_t many = 1000;
              constexpr std::uint32_t f32 = 10;
              const std::size_t all = bytes.list(many), aval = bytes.table({shape, dtype}),
                                extents = bytes.list(many);
              bytes.point(root, in_avals, all);
              bytes.point_all(all, many, aval);
              bytes.set(aval, dtype, f32);
              bytes.point(aval, shape, extents);
              bytes.point_all(extents, many, bytes.text(extent));
            });
}

TEST(ForeignDamage, CustomCallsOfXlasOwnAreCheckedOrRefused) {
  auto call = [](const std::string& target, const std::string& types, const char* operands = "%a",
                 const char* results = "%0") {
    const std::string result =
        std::string(results) == "%0" ? types.substr(types.find("->") + 3) : "tensor<2xf32>";
    return load_text(
        module(fmt::format("  {} = stablehlo.custom_call @\"{}\"({}) {{mhlo.sharding = "
                           "\"{{devices=[2]0,1}}\"}} : {}",
                           results, target, operands, types),
               result),
        "name");
  };
  const std::string same = "(tensor<4xf32>) -> tensor<4xf32>",
                    other = "(tensor<4xf32>) -> tensor<2xf32>";
  const Tensor x = tensor<float>({4, 3, 2, 1});
  for (const char* target :
       {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint",
        "annotate_device_placement", "xla.sdy.FuncResultSharding"}) {
    SCOPED_TRACE(target);
    const Loaded program = call(target, same);
    EXPECT_TRUE(program.required_functions().empty());
    EXPECT_EQ(program(x).at(0).to_vector<float>(), x.to_vector<float>());
    expect_error<Error>([&] { call(target, other); },
                        {"load: name:2: custom call '", "one device", "got (tensor<4xf32>)"});
    expect_error<Error>(
        [&] { call(target, "(tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>", "%a, %a"); },
        {"one device"});
  }
  for (const char* target : {"SliceToDynamic", "PadToStatic", "Pin", "CreateBuffer",
                             "__onednn$matmul", "__gpu$xla.gpu.triton", "xla.sdy.Other"})
    expect_error<Error>([&] { call(target, same); }, {"name:2: custom call '", "is XLA's own"});
  for (const char* types : {"(tensor<4xf32>) -> tensor<2xf32>"})
    for (const char* target : {"TopK", "mhlo.topk"})
      expect_error<Error>([&] { call(target, types); }, {"gives its largest elements"});
  expect_error<Error>(
      [&] { load_text("func.func @main() { \"vhlo.constant_v1\"() <{value = 1}> }", "name"); },
      {"name:1: operations of VHLO are read from portable artifacts"});
}

}  // namespace
}  // namespace postern::test
