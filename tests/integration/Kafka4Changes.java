import java.io.File;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.jar.JarFile;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.protocol.ApiKeys;

/** Prints what a release of Kafka knows of settings, as rows with tabs between; test_kafka4_changes.py compares them. */
public class Kafka4Changes {
    private static final Map<String, String> BROKER = Map.of(
        "process.roles", "broker", "node.id", "1", "controller.listener.names", "CONTROLLER",
        "controller.quorum.voters", "3000@localhost:9093", "listeners", "PLAINTEXT://localhost:9092", "log.dirs", "/tmp/logs");
    private static final List<String> NUMBERS = List.of(
        "-2", "-1", "0", "1", "2", "10", "14", "100", "1000", "1048575", "1048576", "8388607", "8388608", "2147483647");
    private static final List<String> LISTS = List.of("", "a,a", "x");
    private static final List<String> PLUGINS = List.of(
        "kafka.metrics.KafkaMetricsReporter",
        "org.apache.kafka.common.config.provider.ConfigProvider",
        "org.apache.kafka.common.metrics.MetricsReporter",
        "org.apache.kafka.common.replica.ReplicaSelector",
        "org.apache.kafka.common.security.auth.AuthenticateCallbackHandler",
        "org.apache.kafka.common.security.auth.KafkaPrincipalBuilder",
        "org.apache.kafka.common.security.auth.Login",
        "org.apache.kafka.common.security.auth.SecurityProviderCreator",
        "org.apache.kafka.common.security.auth.SslEngineFactory",
        "org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor",
        "org.apache.kafka.server.authorizer.Authorizer",
        "org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager",
        "org.apache.kafka.server.log.remote.storage.RemoteStorageManager",
        "org.apache.kafka.server.policy.AlterConfigPolicy",
        "org.apache.kafka.server.policy.CreateTopicPolicy",
        "org.apache.kafka.server.quota.ClientQuotaCallback",
        "org.apache.kafka.server.telemetry.ClientTelemetry");

    public static void main(String[] arguments) throws Exception {
        ConfigDef broker = (ConfigDef) member("kafka.server.KafkaConfig$", "configDef");
        ConfigDef topic = (ConfigDef) member("org.apache.kafka.storage.internals.log.LogConfig", "CONFIG");
        rows("broker", broker);
        rows("topic", topic);
        for (Object name : dynamic())
            row("dynamic", name, "", "");
        classes();
        for (ApiKeys request : ApiKeys.clientApis())
            row("request", request.name, request.oldestVersion(), request.messageType.highestDeprecatedVersion());
        for (var key : broker.configKeys().values())
            for (String value : candidates(key))
                row("accepts", key.name, value, startsWith(key.name, value));
        for (var key : topic.configKeys().values())
            for (String value : candidates(key))
                row("loads", key.name, value, loads(key.name, value));
    }

    private static void row(Object... cells) {
        List<String> words = new ArrayList<>();
        for (Object cell : cells)
            words.add(String.valueOf(cell));
        System.out.println(String.join("\t", words));
    }

    private static void rows(String kind, ConfigDef definition) {
        for (var key : definition.configKeys().values())
            row(kind, key.name, key.internalConfig,
                key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "<none>");
    }

    private static List<String> candidates(ConfigDef.ConfigKey key) {
        return switch (key.type) {
            case INT, LONG, SHORT -> NUMBERS;
            case LIST -> LISTS;
            default -> List.of();
        };
    }

    private static boolean startsWith(String name, String value) throws Exception {
        Properties settings = new Properties();
        settings.putAll(BROKER);
        settings.put(name, value);
        try {
            Class.forName("kafka.server.KafkaConfig").getConstructor(Map.class).newInstance(settings);
        } catch (java.lang.reflect.InvocationTargetException error) {
            return false;
        }
        return true;
    }

    private static boolean loads(String name, String value) throws Exception {
        Properties settings = new Properties();
        settings.put(name, value);
        Method load = Class.forName("org.apache.kafka.storage.internals.log.LogConfig")
            .getMethod("fromProps", Map.class, Properties.class);
        try {
            load.invoke(null, Map.of(), settings);
        } catch (java.lang.reflect.InvocationTargetException error) {
            return false;
        }
        return true;
    }

    private static Object member(String owner, String name) throws Exception {
        Class<?> type = Class.forName(owner);
        Object target = owner.endsWith("$") ? type.getField("MODULE$").get(null) : null;
        for (Method method : type.getDeclaredMethods())
            if (method.getName().equals(name) && method.getParameterCount() == 0) {
                method.setAccessible(true);
                return method.invoke(target);
            }
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(target);
    }

    private static Collection<?> dynamic() throws Exception {
        Object names;
        try {
            names = member("kafka.server.DynamicBrokerConfig$", "AllDynamicConfigs");
        } catch (ClassNotFoundException | NoSuchFieldException error) {
            names = member("org.apache.kafka.server.config.DynamicBrokerConfig", "ALL_DYNAMIC_CONFIGS");
        }
        if (names instanceof Collection<?> collection)
            return collection;
        Class<?> iterator = Class.forName("scala.collection.Iterator");
        Object each = Class.forName("scala.collection.Iterable").getMethod("iterator").invoke(names);
        Collection<Object> copied = new TreeSet<>();
        while ((Boolean) iterator.getMethod("hasNext").invoke(each))
            copied.add(iterator.getMethod("next").invoke(each));
        return copied;
    }

    private static void classes() throws Exception {
        ClassLoader loader = Kafka4Changes.class.getClassLoader();
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!new File(path).getName().startsWith("kafka"))
                continue;
            try (JarFile jar = new JarFile(path)) {
                for (var entry : Collections.list(jar.entries()))
                    if (entry.getName().endsWith(".class") && isPlugin(loader, className(entry.getName())))
                        row("class", className(entry.getName()), "", "");
            }
        }
    }

    private static String className(String entry) {
        return entry.substring(0, entry.length() - ".class".length()).replace('/', '.');
    }

    private static boolean isPlugin(ClassLoader loader, String name) throws Exception {
        try {
            Class<?> type = Class.forName(name, false, loader);
            if (type.isInterface() || Modifier.isAbstract(type.getModifiers()) || !Modifier.isPublic(type.getModifiers()))
                return false;
            for (String plugin : PLUGINS)
                if (Class.forName(plugin, false, loader).isAssignableFrom(type))
                    return true;
        } catch (LinkageError | ClassNotFoundException error) {
            return false;
        }
        return false;
    }
}
