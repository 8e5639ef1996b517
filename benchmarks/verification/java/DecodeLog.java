import java.lang.management.ManagementFactory;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** Decodes a segment with Kafka's own serde, again and again in one thread: DecodeLog FILE ROUNDS. Prints records per second of processor time of each round. */
public class DecodeLog {
    public static void main(String[] arguments) throws Exception {
        try (FileChannel channel = FileChannel.open(Path.of(arguments[0]))) {
            for (int round = 0; round < Integer.parseInt(arguments[1]); round++) {
                long began = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
                long records = 0;
                long sum = 0;
                MappedByteBuffer buffer = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
                for (RecordBatch batch : MemoryRecords.readableRecords(buffer).batches()) {
                    batch.ensureValid();
                    if (batch.isControlBatch()) continue;
                    for (Record record : batch) {
                        ApiMessageAndVersion message = MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(record.value()), record.valueSize());
                        sum += message.message().hashCode();
                        records++;
                    }
                }
                System.out.println(records / ((ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - began) / 1e9) + " " + records + " " + sum);
            }
        }
    }
}
