// VHLO's attributes, by the numbers that bytecode gives them.
//
// Bytecode keeps types and attributes in two lists whose entries refer to each other by index.
// type() and attribute() decode an entry when it is first asked for, and those it is made of with
// it, and keep what they found: its text, and the few facts that we need ourselves. A file may be
// anything, so every index is checked, nesting and the amount of text have limits, and what
// StableHLO 1.13 does not have is refused by name instead of guessed.
#include "vhlo.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "attribute_numbers.h"
#include "rules.h"
#include "spi.h"

namespace postern::internal::imported {

namespace {

using Kind = VhloAttribute::Kind;

constexpr std::string_view hexadecimal = "0123456789ABCDEF";

struct Words {
  std::uint64_t code;
  const char* name;
  std::vector<std::string_view> words;
};
/// Attributes that are one word of a list.
const std::vector<Words>& enumerations() {
  static const std::vector<Words> all = {
      {3, "comparison_direction_v1", {"EQ", "NE", "GE", "GT", "LE", "LT"}},
      {4, "comparison_type_v1", {"NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"}},
      {5,
       "api_version_v1",
       {"API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
        "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"}},
      {7, "fft_type_v1", {"FFT", "IFFT", "RFFT", "IRFFT"}},
      {11, "precision_v1", {"DEFAULT", "HIGH", "HIGHEST"}},
      {12, "rng_algorithm_v1", {"DEFAULT", "THREE_FRY", "PHILOX"}},
      {13, "rng_distribution_v1", {"", "UNIFORM", "NORMAL"}},
      {16, "transpose_v1", {"TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"}},
      {19, "result_accuracy_mode_v1", {"DEFAULT", "HIGHEST", "TOLERANCE"}}};
  return all;
}

/// Numbers of at most a byte are a byte, others are signed.
std::int64_t next_bits(ByteReader& in, std::size_t size) {
  if (size == 1) return static_cast<std::int8_t>(in.byte());
  return in.signed_number();
}

std::string real_text(double value) {
  if (std::isfinite(value)) return fmt::format("{:.17e}", value);
  return fmt::format("0x{:016X}", std::bit_cast<std::uint64_t>(value));
}

}  // namespace

/// Types and attributes are made of others: never of themselves.
class Vhlo::Deeper {
 public:
  explicit Deeper(int& depth) : depth_(depth) {
    if (++depth_ <= 100) return;
    --depth_;
    throw Error(ErrorCode::resource_exhausted, "types or attributes are nested more than 100 deep");
  }
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;

 private:
  int& depth_;
};

// What refers to large attributes often could make any amount of text.
Vhlo::Vhlo(const Bytecode& code, std::size_t file_size)
    : code_(code),
      types_(code.types.size()),
      attributes_(code.attributes.size()),
      budget_(128 * file_size + (1 << 20)) {}

void Vhlo::spend(std::size_t bytes) {
  if (bytes > budget_)
    throw Error(ErrorCode::resource_exhausted,
                "its types and attributes take more text than a file of its size can have");
  budget_ -= bytes;
}

const VhloType& Vhlo::type(std::size_t index) {
  if (!types_.at(index)) {
    Deeper deeper(depth_);
    VhloType out = read_type(index);
    spend(out.text.size() + out.builtin.size());
    types_[index] = std::move(out);
  }
  return *types_[index];
}

const VhloAttribute& Vhlo::attribute(std::size_t index) {
  if (!attributes_.at(index)) {
    Deeper deeper(depth_);
    VhloAttribute out = read_attribute(index);
    spend(out.text.size());
    attributes_[index] = std::move(out);
  }
  return *attributes_[index];
}

const std::string& Vhlo::text(std::size_t index) {
  if (attribute(index).kind == Kind::tensor && attributes_[index]->text.empty()) {
    spend(2 * attributes_[index]->bytes.size());
    attributes_[index]->text = tensor_text(*attributes_[index]);
  }
  return attributes_[index]->text;
}

VhloAttribute Vhlo::read_attribute(std::size_t index) {
  const Bytecode::Entry& entry = code_.attributes[index];
  ByteReader in(entry.bytes);
  VhloAttribute out;
  if (entry.dialect == "vhlo" && entry.custom)
    read_vhlo(out, in);
  else if (entry.dialect == "builtin" && entry.custom)
    read_builtin(out, in);
  else
    refuse_newer(fmt::format("an attribute of '{}'", entry.dialect));
  return out;
}

// `in`: an attribute of VHLO's own, from its number on. Reads what that number is followed by, and
// gives `out` its text and, where we look into it, its kind and value; attributes it is made of are
// decoded on the way. Numbers are those of VHLO's bytecode and never change their meaning. Throws
// Error: unimplemented for a number that StableHLO 1.13 does not have, else what is damaged.
void Vhlo::read_vhlo(VhloAttribute& out, ByteReader& in) {
  const std::uint64_t code = in.number();
  if (const auto e = std::ranges::find(enumerations(), code, &Words::code);
      e != enumerations().end()) {
    out.kind = Kind::word;
    out.bytes = e->name;
    out.text = fmt::format("#vhlo<{} {}>", e->name, e->words[in.index(e->words.size(), e->name)]);
    return;
  }
  switch (code) {
    case 1: out.kind = Kind::array; return read_items(out, in);
    case 2:
      out.kind = Kind::boolean;
      out.integer = in.number() != 0;
      out.text = fmt::format("#vhlo.bool_v1<{}>", bool_text(out.integer != 0));
      return;
    case 6: out.kind = Kind::dictionary; return read_items(out, in);
    case 8: return read_number(out, in, true);
    case 9: return read_number(out, in, false);
    case 10: {
      out.kind = Kind::word;
      out.bytes = "output_operand_alias_v1";
      const std::string outputs = extents_text(in);
      const std::int64_t operand = in.signed_number();
      out.text = fmt::format(
          "#vhlo.output_operand_alias_v1<outputTupleIndices = [{}], operandIndex = {}, "
          "operandTupleIndices = [{}]>",
          outputs, operand, extents_text(in));
      return;
    }
    case 14:
      out.kind = Kind::string;
      out.bytes = next_string(in);
      out.text = fmt::format("#vhlo.string_v1<{}>", mlir_quoted(out.bytes));
      return;
    case 15: return read_tensor(out, in);
    case 17:
      out.kind = Kind::type;
      out.type = in.index(code_.types.size(), "type");
      out.text = fmt::format("#vhlo.type_v1<{}>", type(out.type).text);
      return;
    case 18:
      out.text = fmt::format("#vhlo.type_extensions_v1<bounds = [{}]>", extents_text(in));
      return;
    case 20: {
      const double absolute = std::bit_cast<double>(in.signed_number()),
                   relative = std::bit_cast<double>(in.signed_number());
      const std::int64_t ulps = in.signed_number();
      const VhloAttribute& mode = attribute(in.index(code_.attributes.size(), "attribute"));
      if (!fits(mode, Kind::word, "result_accuracy_mode_v1"))
        refuse_damaged("an accuracy has no mode");
      out.kind = Kind::word;
      out.bytes = "result_accuracy_v1";
      out.text = fmt::format("#vhlo.result_accuracy_v1<atol = {}, rtol = {}, ulps = {}, mode = {}>",
                             real_text(absolute), real_text(relative), ulps, mode.text);
      return;
    }
    case 23: throw Error(ErrorCode::unimplemented, "groups of devices are told by a mesh");
    default: refuse_newer(fmt::format("VHLO's attribute number {}", code));
  }
}

void Vhlo::read_builtin(VhloAttribute& out, ByteReader& in) {
  switch (const std::uint64_t code = in.number()) {
    case 1: out.kind = Kind::dictionary; return read_items(out, in);
    case 2:
      out.kind = Kind::string;
      out.bytes = next_string(in);
      out.text = mlir_quoted(out.bytes);
      return;
    case 7: out.text = "unit"; return;
    case 8: {
      const Bytecode::Entry& type = code_.types[in.index(code_.types.size(), "type")];
      ByteReader width_in(type.bytes);
      if (type.dialect != "builtin" || !type.custom || width_in.number() != 0)
        refuse_newer("a number of such a type");
      const std::uint64_t word = width_in.number(), width = word >> 2;  // below: its sign
      if (width == 0 || width > 64) refuse_newer("a number of such a type");
      std::size_t size = 8;
      if (width <= 8) size = 1;
      out.integer = next_bits(in, size);
      if (width == 1) {
        out.kind = Kind::boolean;
        out.text = bool_text(out.integer != 0);
      } else {
        out.kind = Kind::integer;
        const char* kind = "i";
        if (word & 2) kind = "ui";
        out.text = fmt::format("{} : {}{}", out.integer, kind, width);
      }
      return;
    }
    default: refuse_newer(fmt::format("MLIR's attribute number {}", code));
  }
}

/// Arrays and dictionaries.
void Vhlo::read_items(VhloAttribute& out, ByteReader& in) {
  const bool named = out.kind == Kind::dictionary;
  std::size_t each = 1;  // a name stands before its value
  if (named) each = 2;
  out.items.resize(in.count() * each);
  for (std::size_t& item : out.items) item = in.index(code_.attributes.size(), "attribute");
  if (named) {
    // Of Shardy's partitioner, which has nothing to do on one device.
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < out.items.size(); i += 2)
      if (!attribute(out.items[i], Kind::string, "a dictionary's name").bytes.starts_with("sdy."))
        kept.insert(kept.end(), {out.items[i], out.items[i + 1]});
    out.items = std::move(kept);
  }
  for (std::size_t i = 0; i < out.items.size(); ++i) {
    if (i % each > 0)
      out.text += " = ";
    else if (i > 0)
      out.text += ", ";
    out.text += text(out.items[i]);
    if (out.text.size() > budget_) spend(out.text.size());
  }
  if (named)
    out.text = fmt::format("#vhlo.dict_v1<{{{}}}>", out.text);
  else
    out.text = fmt::format("#vhlo.array_v1<[{}]>", out.text);
}

void Vhlo::read_number(VhloAttribute& out, ByteReader& in, bool real) {
  out.type = in.index(code_.types.size(), "type");
  const VhloType& type = this->type(out.type);
  if (type.element_size == 0 || type.is_tensor || type.builtin.starts_with("complex"))
    refuse_damaged("a number has no type of numbers");
  const std::int64_t bits = next_bits(in, type.element_size);
  if (!real) {
    out.kind = Kind::integer;
    out.integer = bits;
    const std::size_t at = type.builtin.find_first_of("0123456789");
    const auto unused = at == std::string::npos ? 0 : 64 - std::stoul(type.builtin.substr(at));
    const std::uint64_t up = static_cast<std::uint64_t>(bits) << unused;  // come without the sign's
    out.integer = static_cast<std::int64_t>(up) >> unused;
    if (type.builtin.starts_with("u") || unused == 63)
      out.integer = static_cast<std::int64_t>(up >> unused);
    std::string digits = std::to_string(out.integer);
    if (type.builtin.starts_with("u")) digits = std::to_string(up >> unused);
    out.text = fmt::format("#vhlo.integer_v1<{} : {}>", digits, type.builtin);
    return;
  }
  out.kind = Kind::real;
  if (type.builtin == "f32")
    out.real = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  else if (type.builtin == "f64")
    out.real = std::bit_cast<double>(bits);
  else if (type.builtin == "bf16")
    out.real = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  else
    refuse_newer(fmt::format("a number of type {} as an attribute", type.builtin));
  out.text = fmt::format("#vhlo.float_v1<{} : {}>", real_text(out.real), type.text);
}

namespace {

/// [[true, false], [...]]: how booleans are written as bytes differs from version to version.
void append_booleans(std::string& out, std::span<const std::int64_t> dims,
                     const std::function<bool()>& next) {
  if (dims.empty()) {
    out += bool_text(next());
    return;
  }
  out += '[';
  for (std::int64_t i = 0; i < dims.front(); ++i) {
    if (i) out += ',';
    append_booleans(out, dims.subspan(1), next);
  }
  out += ']';
}

}  // namespace

void Vhlo::read_tensor(VhloAttribute& out, ByteReader& in) {
  out.kind = Kind::tensor;
  out.type = in.index(code_.types.size(), "type");
  const VhloType& type = this->type(out.type);
  out.bytes = in.take(in.number());
  std::size_t count = 1;
  bool fits = type.is_tensor && type.element_size;
  for (const std::int64_t extent : type.dims)
    fits = fits && extent >= 0 &&
           !__builtin_mul_overflow(count, static_cast<std::size_t>(extent), &count);
  const bool boolean = type.builtin.ends_with("i1>");
  bool one = out.bytes.size() == type.element_size;
  if (boolean) one = out.bytes == "\xff" || (out.bytes.size() == 1 && out.bytes[0] == 0);
  const bool packed =
      boolean && out.bytes.size() == count / 8 + (count % 8 != 0) && out.bytes.size() != count;
  std::size_t size = 0;
  fits = fits && !__builtin_mul_overflow(count, type.element_size, &size) &&
         (one || packed || out.bytes.size() == size);
  if (!fits) {
    std::string_view what = "a tensor";
    if (!type.builtin.empty()) what = type.builtin;
    refuse_damaged(fmt::format("a constant's {} bytes are not of {}", out.bytes.size(), what));
  }
  if (out.bytes.size() < large_constant) out.text = tensor_text(out);
}

/// Its bytes are found to be of its type.
std::string Vhlo::tensor_text(const VhloAttribute& tensor) {
  const VhloType& type = this->type(tensor.type);
  std::size_t count = 1;
  for (const std::int64_t extent : type.dims) count *= static_cast<std::size_t>(extent);
  const std::string_view bytes = tensor.bytes;
  const bool boolean = type.builtin.ends_with("i1>");
  std::string text;
  if (count == 0) {
  } else if (boolean && (bytes == "\xff" || bytes == std::string_view("\0", 1))) {
    text = bool_text(bytes[0] != 0);
  } else if (boolean) {
    const bool packed = bytes.size() != count;
    std::size_t i = 0;
    append_booleans(text, type.dims, [&] {
      const auto at = i++;
      if (packed) return (bytes[at / 8] >> (at % 8) & 1) != 0;
      return bytes[at] != 0;
    });
  } else {
    text = "\"0x";
    text.reserve(2 * bytes.size() + 4);
    for (const char c : bytes)
      text += {hexadecimal[static_cast<unsigned char>(c) >> 4], hexadecimal[c & 15]};
    text += '"';
  }
  return fmt::format("#vhlo.tensor_v1<dense<{}> : {}>", text, type.builtin);
}

const VhloAttribute& Vhlo::attribute(std::size_t index, Kind kind, std::string_view what) {
  const VhloAttribute& found = attribute(index);
  if (found.kind != kind) refuse_damaged(fmt::format("{} is of another kind", what));
  return found;
}

bool Vhlo::fits(const VhloAttribute& found, Kind kind, std::string_view of) {
  if (kind == Kind::other) return found.kind == Kind::string || found.kind == Kind::dictionary;
  if (found.kind != kind) return false;
  if (of.empty()) return true;
  switch (kind) {
    case Kind::word: return found.bytes == of;
    case Kind::integer:
    case Kind::real: return type(found.type).builtin == of;
    case Kind::tensor: {
      const std::string& builtin = type(found.type).builtin;
      return builtin.ends_with(fmt::format("x{}>", of)) || builtin == fmt::format("tensor<{}>", of);
    }
    default: return true;
  }
}

bool Vhlo::is_none(const VhloAttribute& found) {
  return found.kind == Kind::type && type(found.type).text == "!vhlo.none_v1";
}

void Vhlo::expect(std::size_t index, std::string_view name) {
  const VhloExpected& wanted = vhlo_expected(name);
  const VhloAttribute& found = attribute(index);
  std::string_view of = wanted.of;
  if (wanted.items) of = {};
  bool ok = fits(found, wanted.kind, of) || (wanted.or_none && is_none(found));
  if (ok && wanted.items)
    for (const std::size_t item : found.items)
      ok = ok && fits(attribute(item), *wanted.items, wanted.of);
  if (!ok)
    throw Error(ErrorCode::unimplemented,
                fmt::format("attribute '{}' of an operation is of a kind that this reader does not "
                            "know there",
                            name));
}

std::vector<std::pair<std::string, std::size_t>> Vhlo::dictionary(std::size_t index) {
  const std::vector<std::size_t>& items = attribute(index, Kind::dictionary, "a dictionary").items;
  std::vector<std::pair<std::string, std::size_t>> out;
  for (std::size_t i = 0; i < items.size(); i += 2)
    out.emplace_back(attribute(items[i]).bytes, items[i + 1]);
  return out;
}

Vhlo::Named Vhlo::properties(const Operation& op) {
  const std::string& operation = code_.operations[op.name];
  const auto names = vhlo_attribute_names(operation);
  std::string_view bytes;
  if (op.properties) bytes = code_.properties[*op.properties];
  ByteReader in(bytes);
  Named out;
  for (const std::string_view name : names) {
    out.emplace_back(name, in.index(code_.attributes.size(), "attribute"));
    expect(out.back().second, name);
    if (std::ranges::find(says_devices, name) != std::end(says_devices))
      require_one_device(bare_name(operation), name, host_attribute(out.back().second));
  }
  if (in.left()) refuse_newer(fmt::format("{} with more attributes", operation));
  return out;
}

std::size_t Vhlo::find(const Named& all, std::string_view name) {
  return std::ranges::find(all, name, [](const auto& item) { return item.first; })->second;
}

Attribute Vhlo::host_attribute(std::size_t index) {
  const VhloAttribute& a = attribute(index);
  switch (a.kind) {
    case Kind::boolean: return a.integer != 0;
    case Kind::integer: return a.integer;
    case Kind::real: return a.real;
    case Kind::string: return std::string(a.bytes);
    case Kind::tensor: {
      const VhloType& t = type(a.type);
      std::size_t count = 1;
      for (const std::int64_t extent : t.dims) count *= static_cast<std::size_t>(extent);
      const std::string_view element =
          std::string_view(t.builtin).substr(t.builtin.find_last_of("<x") + 1);
      if (element == "i1>" || !is_listed(count, a.bytes.size())) return text(index);
      return numbers_of_bytes(element.substr(0, element.size() - 1), a.bytes, t.element_size, count)
          .value_or(text(index));
    }
    default: return text(index);
  }
}

// As Locations reads them in a text.
Location Vhlo::location(std::size_t index) {
  Location out;
  bool outermost = true;
  for (int steps = 0; steps < 100; ++steps) {
    const Bytecode::Entry& entry = code_.attributes.at(index);
    if (entry.dialect != "builtin" || !entry.custom) return out;
    ByteReader in(entry.bytes);
    const std::uint64_t code = in.number();
    auto next = [&] { return in.index(code_.attributes.size(), "location"); };
    switch (code) {
      case 10:  // callee, caller
        index = next();
        outermost = false;
        break;
      case 12:  // several
        if (in.count() == 0) return out;
        index = next();
        break;
      case 14: {  // a name, and where
        const std::size_t name = next();
        if (outermost) out.name = attribute(name, Kind::string, "a location's name").bytes;
        outermost = false;
        index = next();
        break;
      }
      case 11:
      case 22: {
        out.file = attribute(next(), Kind::string, "a file's name").bytes;
        if (code == 22) in.number();  // how many numbers follow
        out.line = static_cast<std::uint32_t>(std::min<std::uint64_t>(in.number(), 1u << 30));
        return out;
      }
      default: return out;
    }
  }
  return out;
}

}  // namespace postern::internal::imported
