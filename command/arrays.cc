// Inputs: .npy, .npz, and numbers as JSON.
#include "arrays.h"

#include <fmt/format.h>
#include <postern/npy.h>
#include <postern/ops.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <concepts>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "commands.h"

namespace command {

namespace pn = postern;
using Json = nlohmann::json;

namespace {

/// The start of what a user gave, for an error.
std::string shown(const std::string& text) {
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

constexpr int deepest = 64;  // lists in lists

/// Numbers in nested lists: their extents, and the numbers in order.
void flatten(const Json& json, std::size_t depth, pn::Dims& dims, std::vector<Json>& numbers,
             const std::string& text) {
  if (!json.is_array()) {
    if (depth != dims.size() || (!json.is_number() && !json.is_boolean()))
      throw Problem(
          usage,
          fmt::format("'{}' is no array: lists of equal lengths, and numbers in the innermost",
                      shown(text)));
    numbers.push_back(json);
    return;
  }
  const auto size = static_cast<std::int64_t>(json.size());
  if (numbers.empty() && dims.size() == depth) dims.push_back(size);
  if (depth >= dims.size() || dims[depth] != size)
    throw Problem(usage,
                  fmt::format("'{}' is no array: its lists have different lengths", shown(text)));
  for (const Json& part : json) flatten(part, depth + 1, dims, numbers, text);
}

/// Whether a whole number is one of a pred's or an integer dtype's values.
bool fits(const Json& n, pn::DType dtype) {
  if (n.is_boolean()) return true;
  const bool sign = pn::is_signed(dtype);
  const int bits = (dtype == pn::DType::pred ? 1 : pn::bit_width(dtype)) - (sign ? 1 : 0);
  const std::uint64_t most = ~std::uint64_t{0} >> (64 - bits);
  if (n.is_number_unsigned()) return n.get<std::uint64_t>() <= most;
  const auto negative = n.get<std::int64_t>();  // or -0
  return negative == 0 || (sign && static_cast<std::uint64_t>(-(negative + 1)) <= most);
}

pn::Tensor from_text(const std::string& text, const pn::Type& like) {
  // Lists are looked through by recursion.
  const Json json = Json::parse(
      text,
      [&](int depth, Json::parse_event_t event, Json&) {
        if (event == Json::parse_event_t::array_start && depth >= deepest)
          throw Problem(usage, fmt::format("'{}' has more than {} lists in each other", shown(text),
                                           deepest));
        return true;
      },
      false);
  if (json.is_discarded())
    throw Problem(
        usage,
        fmt::format(
            "'{}' is neither a .npy or .npz file nor numbers such as 3.5 or [[1, 2], [3, 4]]",
            shown(text)));
  pn::Dims dims;
  std::vector<Json> numbers;
  flatten(json, 0, dims, numbers, text);
  std::vector<double> values;
  std::vector<std::int64_t> whole;
  // Numbers that belong to the program's dtype; which 2.5 does not for s32, nor 300 for u8.
  const bool integral = pn::is_integer(like.dtype) || like.dtype == pn::DType::pred;
  for (const Json& n : numbers) {
    if (integral && (n.is_number_float() || !fits(n, like.dtype)))
      throw Problem(usage,
                    fmt::format("'{}' has {}, which no {} is; the program takes {}", shown(text),
                                n.dump(), pn::to_string(like.dtype), pn::to_string(like)));
    if (integral)
      whole.push_back(n.is_boolean() ? n.get<bool>() : n.get<std::int64_t>());  // of u64: its bits
    else
      values.push_back(n.is_boolean() ? n.get<bool>() : n.get<double>());
  }
  const pn::Tensor wide = integral ? pn::Tensor(pn::Type{pn::DType::s64, dims}, whole.data())
                                   : pn::Tensor(pn::Type{pn::DType::f64, dims}, values.data());
  return pn::convert(wide, like.dtype);
}

Json json_of(bool x) { return x; }
Json json_of(std::int64_t x) { return x; }
Json json_of(std::uint64_t x) { return x; }
template <std::floating_point T>
Json json_of(T x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x < 0 ? "-Infinity" : "Infinity";
  std::string text = fmt::format("{}", x);  // the digits of a float, not of its double
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return Json::parse(text);
}
template <class T>
Json json_of(std::complex<T> x) {
  return {json_of(x.real()), json_of(x.imag())};
}

/// `next` is the first element, and is moved behind the last.
template <class I>
Json nested(std::span<const std::int64_t> dims, I& next) {
  using T = typename std::iterator_traits<I>::value_type;
  if (dims.empty()) return json_of(static_cast<T>(*next++));
  Json out = Json::array();
  for (std::int64_t i = 0; i < dims[0]; ++i) out.push_back(nested(dims.subspan(1), next));
  return out;
}
template <class T>
Json as(const pn::Tensor& array) {
  const std::vector<T> elements = pn::convert<T>(array).template to_vector<T>();
  auto next = elements.begin();
  return nested(array.dims(), next);
}

}  // namespace

Json json_of(const pn::Tensor& array) {
  const pn::DType dtype = array.dtype();
  if (dtype == pn::DType::pred) return as<bool>(array);
  if (pn::is_unsigned(dtype)) return as<std::uint64_t>(array);
  if (pn::is_signed(dtype)) return as<std::int64_t>(array);
  if (dtype == pn::DType::c128) return as<std::complex<double>>(array);
  if (pn::is_complex(dtype)) return as<std::complex<float>>(array);
  if (dtype == pn::DType::f64) return as<double>(array);
  return as<float>(array);
}

namespace {

using Arrays = std::vector<std::pair<std::string, pn::Tensor>>;

Arrays read_named(const std::string& file) {
  Arrays out;
  if (file.ends_with(".safetensors"))
    for (auto& [name, t] : pn::load_tensors(file)) out.emplace_back(name, t);
  else if (file.ends_with(".npz"))
    for (auto& [name, t] : pn::read_npz(file)) out.emplace_back(name, std::move(t));
  else
    throw Problem(usage, fmt::format("'{}' is no .npz or .safetensors file", shown(file)));
  return out;
}

/// An input's number, and its name if it has one.
std::string word_of(const pn::Loaded& program, std::size_t input) {
  const std::string& name = program.input_names()[input];
  return name.empty() ? fmt::format("input {}", input) : fmt::format("input {}, {},", input, name);
}

}  // namespace

std::vector<pn::Tensor> read_inputs(const std::vector<std::string>& inputs,
                                    const std::vector<std::string>& named,
                                    const pn::Loaded& program) {
  const std::vector<pn::Type>& types = program.inputs();
  const std::vector<std::string>& names = program.input_names();
  std::vector<pn::Tensor> out(types.size());
  for (const std::string& file : named)
    for (auto& [name, t] : read_named(file)) {
      const auto found = std::ranges::find(names, name);
      if (found == names.end())
        throw Problem(usage, fmt::format("{}: the program has no input '{}'; there are {}", file,
                                         name, fmt::join(names, ", ")));
      out[static_cast<std::size_t>(found - names.begin())] = std::move(t);
    }
  auto next = [&, i = std::size_t{0}]() mutable {
    while (i < out.size() && out[i].has_value()) ++i;
    return i;
  };
  std::size_t came = types.size() - static_cast<std::size_t>(std::ranges::count_if(
                                        out, [](const pn::Tensor& t) { return !t.has_value(); }));
  const auto wanted = [&] {
    return fmt::format("the program takes {} inputs {}", types.size(), pn::to_string(types));
  };
  const auto give = [&](pn::Tensor t) {
    if (const std::size_t at = next(); at < types.size()) out[at] = std::move(t);
    ++came;
  };
  for (const std::string& input : inputs) {
    if (input.ends_with(".npz")) {
      for (auto& [name, t] : pn::read_npz(input)) give(std::move(t));
    } else if (input.ends_with(".npy")) {
      give(pn::read_npy(input));
    } else if (next() < types.size()) {
      give(from_text(input, types[next()]));
    } else {
      throw Problem(usage, wanted() + fmt::format(", '{}' is one too many", shown(input)));
    }
  }
  if (came != types.size()) throw Problem(usage, wanted() + fmt::format(", {} came", came));
  const auto fitting = [](std::int64_t is, std::int64_t extent) {  // -1: any
    return is == extent || extent < 0;
  };
  for (std::size_t i = 0; i < types.size(); ++i)
    if (out[i].dtype() != types[i].dtype ||
        !std::ranges::equal(out[i].dims(), types[i].dims, fitting))
      throw Problem(usage, fmt::format("{} must be {}, got {}", word_of(program, i),
                                       pn::to_string(types[i]), pn::to_string(out[i].type())));
  return out;
}

namespace {

/// Of complex numbers their parts.
std::vector<double> numbers_of(const pn::Tensor& x) {
  if (!pn::is_complex(x.dtype())) return pn::convert<double>(x).to_vector<double>();
  std::vector<double> out = numbers_of(pn::real(x));
  const std::vector<double> imaginary = numbers_of(pn::imag(x));
  out.insert(out.end(), imaginary.begin(), imaginary.end());
  return out;
}

/// The greatest difference, of what is expected where that is more than 1. NaN fits NaN.
double distance(const pn::Tensor& is, const pn::Tensor& expected) {
  const std::vector<double> a = numbers_of(is), b = numbers_of(expected);
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double d = std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i]));
    most = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(most, d);
  }
  return most;
}

}  // namespace

bool as_expected(const std::vector<pn::Tensor>& results, const pn::Loaded& program,
                 const std::string& file, double tolerance) {
  Arrays wanted;
  if (file.ends_with(".npy"))
    wanted.emplace_back("", pn::read_npy(file));
  else
    wanted = read_named(file);
  const std::vector<std::string>& names = program.output_names();
  const auto named = [&](const auto& array) {
    return !array.first.empty() && std::ranges::find(names, array.first) != names.end();
  };
  const bool by_name = !wanted.empty() && std::ranges::all_of(wanted, named);
  if (!by_name && wanted.size() != results.size())
    throw Problem(usage, fmt::format("{}: it has {} arrays, the program {} results", file,
                                     wanted.size(), results.size()));
  bool all = true;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto& [name, expected] = wanted[i];
    std::size_t at = i;
    if (by_name) at = static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
    const pn::Tensor& is = results[at];
    const std::string word = names[at].empty() ? fmt::format("result {}", at) : names[at];
    if (is.dims() != expected.dims()) {
      std::cout << fmt::format("{}: {}, expected {}\n", word, pn::to_string(is.type()),
                               pn::to_string(expected.type()));
      all = false;
      continue;
    }
    const double d = distance(is, expected);
    const bool fits = d <= tolerance;
    std::cout << fmt::format("{}: {}, off by {:.3g}{}\n", word, pn::to_string(is.type()), d,
                             fits ? "" : fmt::format(", more than {:g}", tolerance));
    all = all && fits;
  }
  return all;
}

}  // namespace command
