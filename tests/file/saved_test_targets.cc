// What a saved program may have the library's own targets do. A file with a true checksum may name
// any of them with any types and numbers, so each looks at what it is given:
//   postern_call     its number of a site; the site's buffers
//     a function     the types of its site (saved_test.cc)
//     a print        its operands (saved_test.cc)
//     postern.tape.write, .read, .free    types, steps, sizes of stores
//     postern.processes                   types of the collective, places, axes
//     start and wait                      roles (saved_test_sites.cc), types of the handle's call
//   postern_goes_on  its result
//   lapack_*_ffi     all buffers and attributes (foreign_test.cc)
#include <postern/file.h>
#include <postern/registry.h>

#include <fmt/format.h>

#include "file/saved_test.h"
#include "site/residual_store.h"

namespace postern::test {
using namespace internal;
namespace {

struct Site {
  std::string name, function, operands, results;
  std::string attributes = "{}", role = "whole", later = "", effect = "unordered";
};
std::string list_of(const std::string& types) {
  return types.empty() ? "[]" : "[\"" + types + "\"]";
}
std::string line_of(const Site& s) {
  return fmt::format(
      R"(// site {{"name":"{}","kind":"call","role":"{}","later":{},"effect":"{}",)"
      R"("place":{{"file":"new/file.cc","line":5}},"operands":{},"operand_structure":"",)"
      R"("operand_paths":[],"results":{},"result_structure":"","result_paths":[],)"
      R"("function":{{"name":"{}","attributes":{}}},"timeout":0,"warn_after":0,)"
      R"("vmap":"sequential","levels":[],"masked":false,"mask_size":0,"transforms":[],)"
      R"("async":false,"derivatives":false,"recomputed":false,"process":-1,"every":1,"until":0,)"
      R"("keep_last":0,"mesh":null,"memory":"host","one_order":false,"partitioned":null,)"
      R"("cut":null,"whole":[],"over":null,"over_whole":[],"device":-1}})"
      "\n",
      s.name, s.role, list_of(s.later), s.effect, list_of(s.operands), list_of(s.results),
      s.function, s.attributes);
}

/// A program of one argument. `body`: what defines %y, of %x.
Loaded program(const std::string& in, const std::string& out, const std::vector<Site>& sites,
               const std::string& body) {
  const auto mlir = [](const std::string& type) {  // "f32[2,3]"
    std::string dims = type.substr(type.find('[') + 1), text;
    dims.pop_back();
    for (const char c : dims) text += c == ',' ? 'x' : c;
    const std::string dtype = type.substr(0, type.find('['));
    return fmt::format("tensor<{}{}{}>", text, text.empty() ? "" : "x", dtype);
  };
  std::string rest = fmt::format(
      "// about {{\"name\":\"main\",\"inputs\":[\"{}\"],\"outputs\":[\"{}\"]}}\n", in, out);
  for (const Site& s : sites) rest += line_of(s);
  rest += fmt::format(
      "module @main {{\n  func.func public @main(%x: {}) -> ({}) {{\n{}    return %y : {}\n  "
      "}}\n}}\n",
      mlir(in), mlir(out), body, mlir(out));
  return load_text(summed("// postern program 1, postern 0.1\n// checksum \n" + rest));
}
std::string custom_call(const std::string& result, const std::string& operands, int site,
                        const std::string& type) {
  return fmt::format(
      "    {} = \"stablehlo.custom_call\"({}) {{call_target_name = \"postern_call\", api_version = "
      "4 : i32, backend_config = {{id = {} : i64, label = \"a\"}}, has_side_effect = true}} : {}\n",
      result, operands, site, type);
}

/// What one step writes is read by another, which says other things of it.
struct Taped {
  int written = 1, read = 1;
  std::string step = "0", read_step = "0", attributes = "{}";
};
Tensor through_tape(const Taped& t) {
  const std::string in = fmt::format("f32[{}]", t.written), out = fmt::format("f32[{}]", t.read),
                    in_type = fmt::format("tensor<{}xf32>", t.written),
                    out_type = fmt::format("tensor<{}xf32>", t.read);
  const Loaded loaded = program(
      in, out,
      {{"while_loop", residual_write, "s64[]\",\"f64[]\",\"" + in, "f64[]", t.attributes},
       {"while_loop", residual_read, "s64[]\",\"f64[]", out, t.attributes}},
      fmt::format("    %k = stablehlo.constant dense<{}> : tensor<i64>\n"
                  "    %j = stablehlo.constant dense<{}> : tensor<i64>\n"
                  "    %none = stablehlo.constant dense<0.0> : tensor<f64>\n",
                  t.step, t.read_step) +
          custom_call("%tape", "%k, %none, %x", 0,
                      "(tensor<i64>, tensor<f64>, " + in_type + ") -> (tensor<f64>)") +
          custom_call("%y", "%j, %tape", 1, "(tensor<i64>, tensor<f64>) -> (" + out_type + ")"));
  return loaded(postern::full(type<float>({t.written}), 7.0f)).at(0).block_until_ready();
}

TEST(SavedTargets, ATapeIsReadAsItWasWritten) {
  if (skipped_in_stages("of a saved program, loops in reverse are no stages")) return;
  EXPECT_EQ(through_tape({3, 3}).to_vector<float>(), (std::vector<float>{7, 7, 7}));
  for (const auto& [written, read] : {std::pair{1'000'000, 1}, {100, 1}, {1, 100}, {1, 1'000'000}})
    expect_error<CallbackError>(
        [&, w = written, r = read] {
          through_tape({w, r});
        },
        {"while_loop", fmt::format("steps of {} bytes", 4 * written),
         fmt::format("not of {}", 4 * read)},
        ErrorCode::invalid_argument);
}

TEST(SavedTargets, AStepThatNoMemoryIsForIsRefusedAtOnce) {
  if (skipped_in_stages("of a saved program, loops in reverse are no stages")) return;
  const TemporaryFolder folder;
  const std::string file = R"({"file":{"string":")" + folder.path() + R"(/tape"}})",
                    limited = R"({"memory":{"int64":4096}})",
                    both = R"({"memory":{"int64":4096},"file":{"string":")" + folder.path() +
                           R"(/tape"}})";
  for (const char* step :
       {"1152921504606846976", "4611686018427387904", "9223372036854775800", "1125899906842624"})
    for (const std::string& attributes : {std::string("{}"), file, limited, both}) {
      SCOPED_TRACE(step + attributes);
      const auto begin = std::chrono::steady_clock::now();
      expect_error<CallbackError>(
          [&] { through_tape({.step = step, .read_step = step, .attributes = attributes}); },
          {"while_loop"}, ErrorCode::resource_exhausted);
      EXPECT_LT(seconds_since(begin), 20);
    }
  for (const char* step : {"-1", "9223372036854775807", "-9223372036854775808"})
    expect_error<CallbackError>([&] { through_tape({.step = step}); }, {"have no place"},
                                ErrorCode::invalid_argument);
  expect_error<CallbackError>([] { through_tape({.read_step = "1152921504606846976"}); },
                              {"is not among its residuals"}, ErrorCode::failed_precondition);
  EXPECT_EQ(through_tape({.step = "1000000", .read_step = "1000000"}).item<float>(), 7);
}

/// A collective over the one process that there is.
Tensor collective(const std::string& operation, const std::string& in, const std::string& out,
                  const std::string& more = R"("axis":{"int64":0},"other":{"int64":0})",
                  const std::string& grid = R"("grid":{"int64s":[1]},"along":{"int64s":[0]})") {
  const std::string attributes = fmt::format(
      R"({{"operation":{{"string":"{}"}},{},{},"pairs":{{"int64s":[]}},"root":{{"int64":0}}}})",
      operation, more, grid);
  const auto mlir = [](const std::string& t) {
    const std::string dims = t.substr(4, t.size() - 5);
    return "tensor<" + dims + (dims.empty() ? "" : "x") + t.substr(0, 3) + ">";
  };
  const Loaded loaded =
      program(in, out, {{"p", "postern.processes", in, out, attributes, "whole", "", "ordered"}},
              custom_call("%y", "%x", 0, "(" + mlir(in) + ") -> (" + mlir(out) + ")"));
  return loaded(ones(loaded.inputs()[0])).at(0).block_until_ready();
}

std::string of_one_device(std::string_view operation) {
  return fmt::format(R"("axis":{{"int64":0}},"other":{{"int64":{}}})",
                     operation == "relay" ? 1 : 0);
}

TEST(SavedTargets, ACollectiveHasTheTypesThatItReadsAndWrites) {
  for (const char* operation :
       {"sum", "max", "min", "gather", "scatter", "exchange", "broadcast", "scatter_from",
        "gather_to", "permute", "relay", "index", "count", "end"})
    for (const char* out : {"f32[1]", "f32[1000000]", "f64[4]", "f32[2]"})
      expect_error<Error>([&] { collective(operation, "f32[4]", out, of_one_device(operation)); },
                          {"does not fit"}, ErrorCode::invalid_argument);
  for (const char* operation : {"gather", "scatter", "exchange", "scatter_from", "gather_to"})
    for (const char* axis : {"-1", "1", "4611686018427387904"})
      expect_error<Error>(
          [&] {
            collective(operation, "f32[4]", "f32[4]",
                       fmt::format(R"("axis":{{"int64":{}}},"other":{{"int64":0}})", axis));
          },
          {"has no axis"}, ErrorCode::invalid_argument);
  expect_error<Error>([] { collective("nothing", "f32[4]", "f32[4]"); }, {"no collective"},
                      ErrorCode::invalid_argument);
  // An axis twice would be more processes than there is memory for.
  const std::string twice = R"("grid":{"int64s":[1048576]},"along":{"int64s":[0,0]})";
  for (const char* operation : {"pass", "sum"})
    expect_error<Error>(
        [&] { collective(operation, "f32[4]", "f32[4]", of_one_device(operation), twice); },
        {"has axis 0 once"}, ErrorCode::invalid_argument);
}

TEST(SavedTargets, ASiteThatThereIsNotIsNotEntered) {
  if (skipped_in_stages("it forges a call of a handler")) return;
  for (const char* id : {"1", "-1", "9223372036854775807"}) {
    const std::string call = custom_call("%y", "%x", 0, "(tensor<1xf32>) -> (tensor<1xf32>)");
    expect_error<Error>(
        [&] {
          const Loaded loaded =
              program("f32[1]", "f32[1]", {{"while_loop", residual_free, "s64[]\",\"f64[]", ""}},
                      replaced(call, "id = 0", fmt::format("id = {}", id)));
          loaded(ones(type<float>({1}))).at(0).block_until_ready();
        },
        {"names a site that its run does not have"});
  }
}

TEST(SavedTargets, WhoAsksWhetherARunGoesOnAsksForAPred) {
  if (skipped_in_stages("it forges a call of a handler")) return;
  const auto ask = [](const std::string& out, const std::string& mlir) {
    const Loaded loaded =
        program("f32[1]", out, {{"while_loop", residual_free, "s64[]\",\"f64[]", ""}},
                "    %y = \"stablehlo.custom_call\"() {call_target_name = \"postern_goes_on\", "
                "api_version = 4 : i32, has_side_effect = true} : () -> " +
                    mlir + "\n");
    return loaded(ones(type<float>({1}))).at(0).block_until_ready();
  };
  expect_error<Error>([&] { ask("f32[]", "tensor<f32>"); }, {"asks for no pred"});
  expect_error<Error>([&] { ask("f64[4]", "tensor<4xf64>"); }, {"asks for no pred"});
}

TEST(SavedTargets, ATicketIsOfACallThatGivesWhatIsWaitedFor) {
  if (skipped_in_stages("of a saved program, started calls are no stages")) return;
  register_function("saved_targets.f", [](View<const float>, View<float> y) { y[0] = 1; });
  const auto waited = [](const std::string& out) {
    const Loaded loaded = program(
        "f32[1]", out,
        {{"a", "saved_targets.f", "f32[1]", "u64[]", "{}", "start", "f32[1]", "ordered"},
         {"a", "", "u64[]", out, "{}", "wait", "", "ordered"}},
        custom_call("%t", "%x", 0, "(tensor<1xf32>) -> (tensor<ui64>)") +
            custom_call("%y", "%t", 1,
                        "(tensor<ui64>) -> (tensor<" + out.substr(4, out.size() - 5) + "xf32>)"));
    return loaded(ones(type<float>({1}))).at(0).block_until_ready();
  };
  EXPECT_EQ(waited("f32[1]").item<float>(), 1);
  expect_error<CallbackError>([&] { waited("f32[1000000]"); }, {"is waited for"},
                              ErrorCode::bad_result);
}

}  // namespace
}  // namespace postern::test
