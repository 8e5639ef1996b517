import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedWriter;
import java.io.File;
import java.io.FileOutputStream;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.AbstractCollection;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Writes random metadata records of every type and version with Kafka's own classes: one log file for each compression
 * type, and what Kafka's own JSON converter says about each record.
 *
 * <p>RandomRecords DIRECTORY SEED RECORDS_PER_TYPE_AND_VERSION
 */
public class RandomRecords {
    private static Random random;

    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[0]);
        random = new Random(Long.parseLong(arguments[1]));
        int each = Integer.parseInt(arguments[2]);
        List<ApiMessageAndVersion> records = new ArrayList<>();
        for (MetadataRecordType type : MetadataRecordType.values()) {
            ApiMessage example = type.newMetadataRecord();
            for (short v = example.lowestSupportedVersion(); v <= example.highestSupportedVersion(); v++) {
                for (int i = 0; i < each; i++) {
                    ApiMessage message = type.newMetadataRecord();
                    if (i > 0) fill(message, message, v); // the first one has all defaults
                    if (writable(message, v)) records.add(new ApiMessageAndVersion(message, v));
                }
            }
        }
        try (BufferedWriter expected = Files.newBufferedWriter(directory.resolve("expected.jsonl"))) {
            long offset = 0;
            for (ApiMessageAndVersion record : records) {
                JsonNode json = MetadataJsonConverters.writeJson(record.message(), record.version());
                String name = record.message().getClass().getSimpleName();
                expected.write("{\"offset\":" + offset++ + ",\"name\":\"" + name + "\",\"version\":" + record.version()
                    + ",\"fields\":" + json + "}\n");
            }
        }
        for (CompressionType type : CompressionType.values()) {
            write(directory.resolve(type.name + ".log").toFile(), records, type);
        }
    }

    private static void write(File file, List<ApiMessageAndVersion> records, CompressionType type) throws Exception {
        try (FileOutputStream stream = new FileOutputStream(file); FileChannel channel = stream.getChannel()) {
            int from = 0;
            while (from < records.size()) {
                int to = Math.min(records.size(), from + 1 + random.nextInt(400));
                MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16),
                    RecordBatch.CURRENT_MAGIC_VALUE, Compression.of(type).build(), TimestampType.CREATE_TIME, from,
                    1_700_000_000_000L, 7);
                for (ApiMessageAndVersion record : records.subList(from, to)) {
                    ObjectSerializationCache cache = new ObjectSerializationCache();
                    ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
                    MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
                    builder.append(1_700_000_000_000L + random.nextInt(100_000), null, buffer.array());
                }
                ByteBuffer out = builder.build().buffer();
                while (out.hasRemaining()) channel.write(out);
                from = to;
            }
        }
    }

    /** Sets every field to something random that its version can carry. */
    private static void fill(Message part, ApiMessage whole, short version) throws Exception {
        for (Method setter : part.getClass().getMethods()) {
            if (!setter.getName().startsWith("set") || setter.getParameterCount() != 1) continue;
            String name = setter.getName().substring(3);
            Method getter = part.getClass().getMethod(Character.toLowerCase(name.charAt(0)) + name.substring(1));
            Object before = getter.invoke(part);
            boolean couldBefore = writable(whole, version);
            Object value = random.nextInt(8) == 0 && !setter.getParameterTypes()[0].isPrimitive()
                ? null : value(setter.getGenericParameterTypes()[0], setter.getParameterTypes()[0], version);
            setter.invoke(part, value);
            if (couldBefore && !writable(whole, version)) setter.invoke(part, before);
        }
    }

    private static boolean writable(ApiMessage message, short version) {
        try {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(buffer), cache, version);
            MetadataJsonConverters.writeJson(message, version);
            return true;
        } catch (RuntimeException error) {
            return false; // a version without this field, or a field that cannot be null
        }
    }

    @SuppressWarnings("unchecked")
    private static Object value(Type generic, Class<?> type, short version) throws Exception {
        if (type == int.class) return random.nextBoolean() ? random.nextInt() : random.nextInt(200) - 3;
        if (type == long.class) return random.nextLong();
        if (type == short.class) return (short) random.nextInt();
        if (type == byte.class) return (byte) random.nextInt();
        if (type == boolean.class) return random.nextBoolean();
        if (type == double.class) return random.nextInt(2) == 0 ? random.nextGaussian() * 1e6 : random.nextInt(1000);
        if (type == String.class) return text();
        if (type == Uuid.class) return new Uuid(random.nextLong(), random.nextLong());
        if (type == byte[].class) {
            byte[] bytes = new byte[random.nextInt(200)];
            random.nextBytes(bytes);
            return bytes;
        }
        if (type == List.class) {
            Class<?> element = (Class<?>) ((ParameterizedType) generic).getActualTypeArguments()[0];
            List<Object> list = new ArrayList<>();
            for (int i = random.nextInt(5); i > 0; i--) list.add(element(element, version));
            return list;
        }
        if (AbstractCollection.class.isAssignableFrom(type)) {
            Class<?> element = (Class<?>) ((ParameterizedType) type.getGenericSuperclass()).getActualTypeArguments()[0];
            Collection<Object> collection = (Collection<Object>) type.getConstructor().newInstance();
            for (int i = random.nextInt(5); i > 0; i--) collection.add(element(element, version));
            return collection;
        }
        throw new IllegalStateException("no random value for " + type);
    }

    private static Object element(Class<?> type, short version) throws Exception {
        if (type == Integer.class) return random.nextInt(2) == 0 ? random.nextInt() : random.nextInt(100);
        if (type == String.class) return text();
        if (type == Uuid.class) return new Uuid(random.nextLong(), random.nextLong());
        Message part = (Message) type.getConstructor().newInstance();
        for (Method setter : type.getMethods()) {
            if (!setter.getName().startsWith("set") || setter.getParameterCount() != 1) continue;
            Class<?> parameter = setter.getParameterTypes()[0];
            if (parameter == int.class && setter.getName().equals("setPort")) setter.invoke(part, random.nextInt(65536));
            else setter.invoke(part, value(setter.getGenericParameterTypes()[0], parameter, version));
        }
        return part;
    }

    private static String text() {
        int length = random.nextInt(6) == 0 ? 120 + random.nextInt(200) : random.nextInt(20);
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < length; i++) {
            text.appendCodePoint(random.nextInt(5) == 0 ? Arrays.asList(0xfc, 0x20ac, 0x1f600, 0x0, 0x2f).get(random.nextInt(5)) : 'a' + random.nextInt(26));
        }
        return text.toString();
    }
}
