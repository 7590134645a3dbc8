// The protocol buffers of event.proto, summary.proto, tensor.proto (all of TensorFlow) and of
// TensorBoard's plug-in for hyperparameters, by the field numbers that Postern uses. Each struct of
// numbers below is a message.
#include "event_file.h"

#include <array>
#include <protozero/pbf_writer.hpp>

#include "summary.h"

namespace postern::internal::host {

using protozero::pbf_writer;
using Tag = protozero::pbf_tag_type;

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> out{};
    for (std::uint32_t i = 0; i < out.size(); ++i) {
      std::uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
      out[i] = crc;
    }
    return out;
  }();
  std::uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

namespace {

template <class T>
void append_little_endian(std::string& to, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) to += static_cast<char>(value >> (8 * i));
}

/// Records that hold checksums would have weak ones of their own, so these are disguised.
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

struct Event {
  static constexpr Tag wall_time = 1, step = 2, file_version = 3, summary = 5;
};
struct Summary {
  static constexpr Tag value = 1;
};
struct Value {
  static constexpr Tag tag = 1, tensor = 8, metadata = 9;
};
struct Metadata {
  static constexpr Tag plugin_data = 1, data_class = 4;
};
struct PluginData {
  static constexpr Tag name = 1, content = 2;
};
struct TensorProto {
  static constexpr Tag dtype = 1, shape = 2, content = 4, float_val = 5, string_val = 8;
  static constexpr Tag shape_dim = 2, dim_size = 1;
};
struct HParams {
  static constexpr Tag version = 1, session_start = 3;     // of HParamsPluginData
  static constexpr Tag parameters = 1, start_time = 5;     // of SessionStartInfo
  static constexpr Tag key = 1, value = 2;                 // of its map
  static constexpr Tag number = 2, text = 3, boolean = 4;  // of google.protobuf.Value
};
enum class DataType : std::int32_t { float32 = 1, float64 = 2, string = 7 };
enum class DataClass : std::int32_t { scalar = 1, tensor = 2, blobs = 3 };

struct Plugin {
  const char* name;
  DataClass data_class;
  std::string content = {};
};

/// A value of this tag with a tensor, whose elements `fill` writes.
template <class F>
std::string value_of(const std::string& tag, const Plugin& plugin, DataType dtype,
                     std::span<const std::int64_t> dims, const F& fill) {
  std::string out;
  pbf_writer value(out);
  value.add_string(Value::tag, tag);
  {
    pbf_writer metadata(value, Value::metadata);
    {
      pbf_writer data(metadata, Metadata::plugin_data);
      data.add_string(PluginData::name, plugin.name);
      if (!plugin.content.empty()) data.add_bytes(PluginData::content, plugin.content);
    }
    metadata.add_enum(Metadata::data_class, static_cast<std::int32_t>(plugin.data_class));
  }
  pbf_writer tensor(value, Value::tensor);
  tensor.add_enum(TensorProto::dtype, static_cast<std::int32_t>(dtype));
  {
    pbf_writer shape(tensor, TensorProto::shape);
    for (const std::int64_t size : dims) {
      pbf_writer dim(shape, TensorProto::shape_dim);
      dim.add_int64(TensorProto::dim_size, size);
    }
  }
  fill(tensor);
  return out;
}

void add_float(pbf_writer& tensor, float value) {
  tensor.add_packed_float(TensorProto::float_val, &value, &value + 1);
}

}  // namespace

std::string tf_record(std::string_view data) {
  std::string out;
  append_little_endian(out, std::uint64_t{data.size()});
  append_little_endian(out, masked_crc(out));
  out += data;
  append_little_endian(out, masked_crc(data));
  return out;
}

std::string version_event(double time) {
  std::string out;
  pbf_writer event(out);
  event.add_double(Event::wall_time, time);
  event.add_string(Event::file_version, "brain.Event:2");
  return out;
}

std::string summary_event(double time, std::int64_t step, const std::vector<std::string>& values) {
  std::string out;
  pbf_writer event(out);
  event.add_double(Event::wall_time, time);
  event.add_int64(Event::step, step);
  pbf_writer summary(event, Event::summary);
  for (const std::string& value : values) summary.add_message(Summary::value, value);
  return out;
}

std::string scalar_summary(const std::string& tag, float value) {
  return value_of(tag, {"scalars", DataClass::scalar}, DataType::float32, {},
                  [&](pbf_writer& tensor) { add_float(tensor, value); });
}

std::string histogram_summary(const std::string& tag, double from, double to,
                              std::span<const std::uint64_t> bins) {
  const std::int64_t dims[] = {std::ssize(bins), 3};
  std::vector<double> rows;  // left, right, count
  for (std::size_t i = 0; i < bins.size(); ++i) {
    rows.push_back(bin_edge(from, to, i, bins.size()));
    rows.push_back(bin_edge(from, to, i + 1, bins.size()));
    rows.push_back(static_cast<double>(bins[i]));
  }
  return value_of(
      tag, {"histograms", DataClass::tensor}, DataType::float64, dims, [&](pbf_writer& tensor) {
        tensor.add_bytes(TensorProto::content, reinterpret_cast<const char*>(rows.data()),
                         rows.size() * sizeof(double));
      });
}

std::string image_summary(const std::string& tag, std::int64_t width, std::int64_t height,
                          const std::vector<std::string>& files) {
  const std::int64_t dims[] = {std::ssize(files) + 2};
  return value_of(tag, {"images", DataClass::blobs}, DataType::string, dims,
                  [&](pbf_writer& tensor) {
                    tensor.add_bytes(TensorProto::string_val, std::to_string(width));
                    tensor.add_bytes(TensorProto::string_val, std::to_string(height));
                    for (const std::string& file : files)
                      tensor.add_bytes(TensorProto::string_val, file);
                  });
}

std::string text_summary(const std::string& tag, std::string_view markdown) {
  return value_of(tag, {"text", DataClass::tensor}, DataType::string, {}, [&](pbf_writer& tensor) {
    tensor.add_bytes(TensorProto::string_val, markdown.data(), markdown.size());
  });
}

std::string hyperparameters_summary(const std::vector<Hyperparameter>& parameters, double time) {
  std::string content;
  pbf_writer data(content);
  data.add_int32(HParams::version, 0);
  {
    pbf_writer start(data, HParams::session_start);
    for (const Hyperparameter& parameter : parameters) {
      pbf_writer entry(start, HParams::parameters);
      entry.add_string(HParams::key, parameter.name);
      pbf_writer value(entry, HParams::value);
      switch (parameter.kind) {
        case Hyperparameter::Kind::number:
          value.add_double(HParams::number, parameter.number);
          break;
        case Hyperparameter::Kind::text: value.add_string(HParams::text, parameter.text); break;
        case Hyperparameter::Kind::boolean:
          value.add_bool(HParams::boolean, parameter.number != 0);
          break;
      }
    }
    start.add_double(HParams::start_time, time);
  }
  return value_of("_hparams_/session_start_info", {"hparams", DataClass::tensor, content},
                  DataType::float32, {}, [](pbf_writer& tensor) { add_float(tensor, 0); });
}

}  // namespace postern::internal::host
